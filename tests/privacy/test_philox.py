"""Noise that is drawn on devices: known answers, moments, fresh keys, and where it is used."""

import pytest
import torch
from scipy import stats

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import DeviceSource, SecureSource, device_normal, philox
from dpgen.runtime import Runtime

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
KNOWN = [  # of Random123, counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words, device):
    first = torch.tensor([counter[0], 7], device=device)
    found = philox((first, *counter[1:]), key)
    assert tuple(int(word[0]) for word in found) == words
    assert all(int(word[0]) != int(word[1]) for word in found)


@pytest.mark.parametrize("device", DEVICES)
def test_draws_are_normal_and_never_the_same(device):
    one, two = (device_normal(torch.device(device), 200_001).cpu() for _ in range(2))
    assert len(one) == len(one.unique()) == 200_001
    for draw in (one, two):
        assert stats.kstest(draw.numpy(), "norm").pvalue > 1e-7
        assert 3.5 < float(draw.abs().max()) < 9.5
    assert float((one == two).double().mean()) < 1e-3
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.02
    half = 100_000
    assert abs(float(torch.corrcoef(torch.stack([one[:half], one[-half:]]))[0, 1])) < 0.02, "of a pair, too"


def test_every_word_of_the_system_moves_a_draw(monkeypatch):
    def drawn(changed: int) -> torch.Tensor:
        words = iter(7 + (place == changed) for place in range(5))
        monkeypatch.setattr("os.urandom", lambda count: next(words).to_bytes(count, "big"))
        return device_normal(torch.device("cpu"), 4)

    assert len(torch.stack([drawn(changed) for changed in range(6)]).unique(dim=0)) == 6


def test_noise_of_a_device_is_made_there_and_that_of_a_cpu_is_aes(monkeypatch):
    source = DeviceSource()
    drawn = []
    monkeypatch.setattr(SecureSource, "unrounded_normal", lambda self, *shape, **_: drawn.append(shape) or torch.zeros(shape))
    assert source.normal_on(torch.device("meta"), 7, noise_std=1.0).device.type == "meta"
    assert drawn == []
    monkeypatch.setattr("dpgen.privacy.noise.device_normal", lambda device, n: torch.arange(n).double())
    assert source.normal_on(torch.device("meta"), 3, noise_std=2.5).tolist() == [0.0, 2.5, 5.0]
    source.normal_on(torch.device("cpu"), 7, noise_std=1.0)
    assert drawn == [(7,)]


@pytest.mark.parametrize("noise_source", ["host", "device"])
def test_the_curator_of_a_run_draws_where_it_was_told_to(noise_source):
    curator = Curator(Ledger(None, delta=1e-5), source=Runtime(noise_source=noise_source).source())
    assert curator.draws_on_device == (noise_source == "device")


@pytest.mark.parametrize("options", [{"noise_source": "gpu"}, {"noise_source": "device", "accelerator": "cpu"}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="noise_source"):
        Runtime(**options)
