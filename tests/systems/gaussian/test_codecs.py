"""Public codecs: exact inverses, record by record."""

import pytest
import torch
from torch import Tensor

from dpgen.systems.gaussian.codecs import CODECS, DistanceCodec, ShearCodec, encoded
from dpgen.systems.gaussian.sums import RecordStream


def pictures() -> Tensor:
    """Random bits, a slanted stroke, nothing, everything."""
    generator = torch.Generator().manual_seed(0)
    noise = (torch.rand(40, 8, 9, generator=generator) > torch.rand(40, 1, 1, generator=generator)).float()
    stroke = torch.zeros(1, 8, 9)
    stroke[0, torch.arange(8), torch.arange(8)] = 1.0
    return torch.cat([noise, stroke, torch.zeros(1, 8, 9), torch.ones(1, 8, 9)]).flatten(1)


@pytest.mark.parametrize("name", list(CODECS))
def test_decoding_gives_the_bits_back_exactly(name: str) -> None:
    x, codec = pictures(), CODECS[name]((8, 9))
    code = codec.encode(x)
    assert code.shape == (len(x), codec.code_size)
    assert 0.0 <= float(code.min()) <= float(code.max()) <= 1.0
    assert torch.equal((codec.decode(code) > 0.5).float(), x)


@pytest.mark.parametrize("name", list(CODECS))
def test_a_code_depends_on_its_own_record_only(name: str) -> None:
    x, codec = pictures(), CODECS[name]((8, 9))
    assert torch.equal(codec.encode(x)[3:4], codec.encode(x[3:4]))


def test_shear_gives_grey_values_back_and_stands_strokes_upright() -> None:
    codec, x = ShearCodec((8, 9)), torch.rand(20, 72, generator=torch.Generator().manual_seed(1))
    assert torch.equal(codec.decode(codec.encode(x)), x)
    upright = codec.encode(pictures()[40:41])[0, :-1].reshape(8, 9)
    assert int((upright.sum(0) > 0).sum()) <= 2, "the diagonal is a column now"


def test_any_real_code_has_an_image() -> None:
    wild = torch.randn(5, 73, generator=torch.Generator().manual_seed(2)) * 9
    assert ShearCodec((8, 9)).decode(wild).isfinite().all()
    assert DistanceCodec((8, 9)).decode(wild[:, :-1]).shape == (5, 72)


def test_a_stream_of_codes_keeps_labels() -> None:
    stream = encoded(RecordStream(pictures(), torch.arange(43), batch_size=20), ShearCodec((8, 9)))
    assert [code.shape[1] for code, _ in stream] == [73, 73, 73]
    assert torch.cat([labels for _, labels in stream if labels is not None]).tolist() == list(range(43))
