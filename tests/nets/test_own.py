"""Networks of your own: what is refused before anything is spent, and that loading runs nothing that was not imported."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import own_gans
import own_networks
import pandas as pd
import pytest
import tiny
import torch
from own_networks import Good, Patient
from refusals import refused
from torch import nn
from torch.utils.data import TensorDataset

import dpgen
from dpgen.cli.main import exit_code, main
from dpgen.config import parse_job
from dpgen.data import Table, load_table
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.evaluation import evaluate
from dpgen.nets import OwnBank
from dpgen.nets.own import OwnCriticBank, imported, known
from dpgen.privacy.clipping import gradient_norms
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.release import PublicModel
from dpgen.schema import Schema
from dpgen.systems.dp_sgd.model import Means, one_hot_rows
from dpgen.systems.dpgm.model import MixtureModel
from dpgen.systems.dpgm.plan import DPGMConfig

D, SMALL = 6, {"steps": 2, "sampling_rate": 0.5}


def made(k: int = 2, network: Any = Good, **options: Any) -> OwnBank:
    bank = OwnBank(k, D, network=network, network_options=options)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    return bank


def model(bank: OwnBank) -> MixtureModel:
    return MixtureModel(bank, counts=torch.ones(bank.k), statement=tiny.statement())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model(made(hidden=3)).save(tmp_path / "model")
    return tmp_path / "model"


# -- a fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_a_network_is_trained_released_and_loaded(tmp_path: Path) -> None:
    release = dpgen.fit(
        tiny.records(), "dpgm", epsilon=2.0, network=Good, network_options={"hidden": 3}, clusters="labels", **SMALL
    )
    assert isinstance(release, PublicModel)
    assert "own_networks:Good gets one record at a time" in " ".join(release.statement.assumptions)
    release.save(tmp_path)
    again = dpgen.load(tmp_path)
    for a, b in zip(release.samples(50, random_state=1).arrays().values(), again.samples(50, random_state=1).arrays().values()):
        assert (a == b).all()
    architecture = again.description()["architecture"]
    assert architecture == {"k": tiny.CLASSES, "d": tiny.D, "network": "own_networks:Good", "network_options": {"hidden": 3}}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("grey", [True, False])
def test_a_network_sees_grey_values_unless_bits_are_asked_for(grey: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[float] = set()
    taken = OwnBank.gradients
    monkeypatch.setattr(OwnBank, "gradients", lambda self, x, *more: seen.update(x.flatten().tolist()) or taken(self, x, *more))
    pictures = np.random.default_rng(0).integers(0, 256, (40, 4, 4)).astype(np.uint8)
    monkeypatch.setattr(OwnBank, "settle", lambda _: None)
    release = dpgen.fit(pictures, "dpgm", epsilon=2.0, network=Good, clusters="none", grey=grey, **SMALL)
    shades = set((torch.arange(1, 255) / 255).tolist())
    assert (len(seen & shades) > 100) == grey
    assert (len(np.unique(release.sample(50))) > 2) == grey
    assert release.samples(5).grey is None or grey


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("images", [False, True])
def test_a_classifier_needs_no_samples_and_is_released_as_weights(images: bool, tmp_path: Path) -> None:
    shape = {"x": (60, 8, 8, 3)} if images else {}
    rng = np.random.default_rng(0)
    data: Any = tiny.records()
    if images:
        data = TensorDataset(torch.from_numpy(rng.integers(0, 256, shape["x"]).astype(np.uint8)), torch.arange(60) % 3)
    options = {"network": own_networks.Classifier, "network_options": {"hidden": 3}}
    release = dpgen.fit(data, "dpgm", epsilon=2.0, **options, **SMALL)
    release.save(tmp_path)
    made = dpgen.load(tmp_path).module()
    assert made(torch.rand(5, 192 if images else tiny.D)).shape == (5, 3 if images else tiny.CLASSES)
    with refused("sample"):
        release.sample(3)
    for wrong in ({"clusters": "labels"}, {"label_column": None}):
        with refused("own_networks:Classifier"):
            dpgen.fit(pd.DataFrame(rng.integers(0, 2, (20, 3))), "dpgm", epsilon=2.0, **options, **SMALL, **wrong)


# -- tables ----------------------------------------------------------------------------------------------------------


TRUTHS = {"fields": [{"name": "a", "type": "boolean"}]}


def visits(test_fraction: float = 0.0) -> Table:
    return load_table(path=simulated_visits(300), schema=dict(VISITS), test_fraction=test_fraction)  # type: ignore[return-value]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("clusters", ["labels", "none"])
def test_a_network_of_a_table_gives_typed_rows_of_its_schema(clusters: str, tmp_path: Path) -> None:
    table = visits()
    release: Any = dpgen.fit(table, "dpgm", epsilon=2.0, network=Good, clusters=clusters, **SMALL)
    rows = release.sample(40, random_state=1)
    assert bool(table.schema.admissible(table.schema.encode(rows)).all())
    assert {name: str(kind) for name, kind in rows.dtypes.items()}.items() >= {"age": "int64", "readmitted": "bool"}.items()
    release.save(tmp_path)
    pd.testing.assert_frame_equal(rows, dpgen.load(tmp_path).sample(40, random_state=1))
    wanted = table.codes[:1]
    x, label = one_hot_rows(wanted, table.schema, labelled=clusters == "labels")
    release.network.means_of = lambda n, *_: Means(
        x.float().expand(n, -1), label, None if label is None else label.expand(n), 1
    )
    assert bool((table.schema.encode(release.sample(30)) == wanted).all()), "means are weights of the codes in their block"


@pytest.mark.usefixtures("quiet")
def test_a_classifier_tells_the_target_of_a_table_and_is_scored_on_rows_held_out(tmp_path: Path) -> None:
    table, frame = visits(0.3), simulated_visits(50).content
    release: Any = dpgen.fit(table, "dpgm", epsilon=2.0, network=own_networks.Classifier, **SMALL)
    release.save(tmp_path)
    again = dpgen.load(tmp_path)
    x, labels = one_hot_rows(table.test_codes, table.schema, labelled=True)
    (score,) = evaluate(release, table).scores
    assert score.value == float((again.predict(x.float()) == labels).double().mean())
    assert score.private, "nobody has paid for it"
    assert torch.equal(again.predict(frame), again.predict(frame.drop(columns="readmitted")))
    assert torch.equal(again.predict(x.float()), again.module()(x.float()).argmax(1))
    with refused("age"):
        again.predict(frame.assign(age=None))
    described = table.schema.descriptor()
    (age,) = (field for field in described["fields"] if field["name"] == "age")
    age |= {"dpgen:source": "dp", "dpgen:outside": "clamp", "dpgen:fill": 40}
    again.schema = Schema.from_descriptor(described)
    filled = again.predict(frame.assign(age=40))
    for other in (None, "many"):  # as the rows that it was trained on
        assert torch.equal(again.predict(frame.assign(age=other)), filled)
    assert evaluate(release, visits()).scores == []


@pytest.mark.parametrize(
    ("given", "options", "word"),
    [
        (simulated_visits(60).content, {"target": "sex"}, "schema"),
        (duckdb.sql("select range % 2 as a from range(60)"), {"schema": TRUTHS}, "path"),
        (pd.DataFrame({"a": [True] * 9}), {"target": "a", "schema": TRUTHS}, "'a'"),
        (simulated_visits(60).content, {"schema": dict(VISITS), "unit": "visit", "max_contributions": 2}, "be 1"),
    ],
)
def test_tables_that_networks_cannot_see_are_refused(given: Any, options: dict[str, Any], word: str) -> None:
    with refused(word):
        dpgen.fit(given, "dpgm", epsilon=2.0, network=Good, **SMALL, **options)


REFUSED: list[tuple[Any, str]] = [
    (lambda d: Good(d), "nn.Module"),
    (own_networks.local(), "nobody can import"),
    ("__main__:Net", "package.module:Class"),
    ("Net", "package.module:Class"),
    ("own_networks:Absent", "Absent"),
    ("absent_package.nets:Net", "absent_package"),
    (own_networks.Other, "method loss"),
    (dict, "nn.Module"),
    ("Batched", "BatchNorm1d"),
    ("Centred", "one by one"),
    ("Dropping", "without dropout"),
    ("Remembering", "loss changes scale"),
    ("Hoarding", "loss changes seen"),
    ("Branching", "torch.func"),
    ("Constant", "gradient that is 0"),
    ("Summed", "torch.float32"),
    ("Infinite", "not finite"),
    ("Failing", "KeyError"),
    ("Unbounded", "[0, 1]"),
    ("Restless", "sample"),
    ("Noiseless", "latent"),
    ("Lazy", "decoder.weight"),
    ("Frozen", "no parameter"),
    ("Growing", "other parameters"),
    ("Hidden", "built again"),
]


@pytest.mark.parametrize(("network", "word"), REFUSED, ids=lambda part: getattr(part, "__name__", str(part)))
def test_it_is_refused_in_one_line_before_anything_is_spent(network: Any, word: str) -> None:
    if isinstance(network, str) and network.isidentifier() and network != "Net":
        network = getattr(own_networks, network)
    ledger = Ledger(Budget(2.0, 1e-5))
    with refused("network" if word != "BatchNorm1d" else "layer", word):
        dpgen.fit(tiny.records(), "dpgm", epsilon=2.0, ledger=ledger, network=network, clusters="none", **SMALL)
    assert (ledger.entries(), ledger.promised()) == ([], [])


@pytest.mark.parametrize("options", [{"hidden": {1, 2}}, {"hidden": float("nan")}, {"hiden": 3}, {"d": 3}])
def test_options_are_json_that_the_class_takes(options: dict[str, Any]) -> None:
    with refused(*options):
        OwnBank(1, D, network=Good, network_options=options)


@pytest.mark.parametrize("options", [{"kind": "SyncBatchNorm"}, {"kind": "InstanceNorm1d", "track_running_stats": True}])
def test_layers_that_mix_records_are_refused(options: dict[str, Any]) -> None:
    with refused("encoder.1", options["kind"]):
        OwnBank(2, D, network=own_networks.Batched, network_options=options)


# -- the bank --------------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_one_record_at_a_time() -> None:
    generator = torch.Generator().manual_seed(2)
    x, z = torch.rand(5, D, generator=generator), torch.randn(5, 2, generator=generator)
    bank = made(3, own_networks.Convolutional)
    gradients = bank.gradients(x, [0, 2, 2, 5], lambda *shape: z)
    dense, module = tiny.one_by_one(gradients, 3, bank.p).float(), own_networks.Convolutional(D)
    for record, c in enumerate([0, 0, 2, 2, 2]):
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(bank.part(name)[c])
        slow = torch.autograd.grad(module.loss(x[record : record + 1], z[record : record + 1]).sum(), list(module.parameters()))
        assert torch.allclose(dense[record], torch.cat([value.flatten() for value in slow]), atol=1e-5)
    assert torch.allclose(gradient_norms(gradients), dense.norm(dim=1), rtol=1e-4)
    assert bank.gradients(x[:0], [0, 0, 0, 0], torch.zeros).factors[0].outputs.shape == (0, bank.p)


class Telling(Good):
    """Prints what it sees, and stops for some records, which trials have not."""

    def loss(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        print(f"secret {len(x)}")
        try:
            torch.nn.functional.embedding(x[:, 0].long(), torch.zeros(2, 2))
        except IndexError as error:
            raise KeyError(f"secret {x}") from error
        return super().loss(x, z)


def test_nothing_that_a_loss_prints_or_raises_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    bank, x = made(1, Telling), torch.ones(6, 6)
    bank.settle()
    capfd.readouterr()
    usual = gradient_norms(bank.gradients(x, [0, 6], torch.ones))
    x[2] = 7.0
    norms = gradient_norms(bank.gradients(x, [0, 6], torch.ones))
    assert norms.isnan().tolist() == [False, False, True, False, False, False]
    assert torch.equal(norms[3:], usual[3:])
    assert "secret" not in "".join(capfd.readouterr())


def test_weights_come_from_public_randomness_alone() -> None:
    first, state = made(), torch.get_rng_state()
    again = made()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True))
    assert not torch.equal(first.theta[0], first.theta[1])
    assert torch.allclose(first.part("decoder.weight")[0], first.part("decoder.weight")[1], atol=0.05)
    assert "frozen" not in first.shapes, "what needs no gradient stays as it was built"


def test_samples_come_from_the_chosen_model() -> None:
    bank = made(3)
    bank.part("decoder.bias")[1].fill_(50.0)
    for c in range(3):
        assert bool((bank.sample(c, 4, torch.Generator().manual_seed(0)) > 0.99).all()) == (c == 1)


def test_a_release_holds_nothing_that_calls_have_left() -> None:
    bank = made(1, Patient)
    scale, x = bank.state_dict()["template.scale"].clone(), torch.ones(3, D)
    for _ in range(120):
        gradients = bank.record_gradients("loss", [0, 3], x, torch.zeros(3, 2))
    assert torch.equal(bank.state_dict()["template.scale"], scale)
    assert hasattr(bank.template, "kept"), "the class is what it says"
    released = bank.released()
    assert not hasattr(released.template, "kept")
    assert torch.equal(released.theta, bank.theta)
    assert torch.equal(released.state_dict()["template.scale"], scale)
    assert tiny.one_by_one(gradients, 1, bank.p).shape == (3, bank.p)


def test_only_banks_that_can_be_released_and_fit_are_taken() -> None:
    config = DPGMConfig(clusters="none", network="own_networks:Good")
    plan = dpgen.systems.DPGMPlan(steps=2)
    critics = OwnCriticBank(D, network=own_gans.Judge)
    for bank, name in ((critics, "OwnCriticBank"), (made(2), "k 2"), (OwnBank(1, D + 1, network=Good), "d 7")):
        with refused("bank", name):
            dpgen.systems.DPGM(d=D, plan=plan, config=config, bank=bank)
    assert dpgen.systems.DPGM(d=D, plan=plan, config=config, bank=made(1)).bank.architecture()["network"] == "own_networks:Good"


# -- loading ---------------------------------------------------------------------------------------------------------


class Renamed(Good):
    """What has moved: `Good` of another module."""


Renamed.__name__ = "Good"


def unimported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "own_networks")


def test_a_network_that_is_not_imported_is_not_imported_by_a_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unimported(monkeypatch)
    with refused("own_networks:Good"):
        dpgen.load(saved)
    assert "own_networks" not in sys.modules
    assert dpgen.load(saved, networks=[Good]).description()["architecture"]["network_options"] == {"hidden": 3}
    assert isinstance(dpgen.load(saved, networks=[Renamed]), MixtureModel)
    with refused("nn.Module"):
        dpgen.load(saved, networks=[dict])  # type: ignore[list-item]
    with refused("own_networks:Good"):
        dpgen.load(saved)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A module that imports what it is asked for, as lazy packages do; what it was asked."""
    names: list[str] = []
    lazy = ModuleType("lazy_package")

    def give(name: str) -> Any:
        names.append(name)
        return Good

    lazy.__getattr__ = give  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_package", lazy)
    return names


@pytest.mark.parametrize("path", ["os:system", "torch.nn:Linear", "lazy_package:Good", "own_networks:local", "", ":", "a:b:c"])
def test_what_a_file_names_is_a_network_that_stands_there_or_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(os, "system", called.append)
    names = asked(monkeypatch)
    with refused(path, error=ImportError):
        known(path)
    assert (called, names) == ([], [])


class Wider(Good):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__(d, hidden, latent=3)


class Longer(Good):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__(d, hidden)
        self.another = nn.Parameter(torch.zeros(1), requires_grad=False)


Wider.__name__ = Longer.__name__ = "Good"


@pytest.mark.parametrize(("changed", "shape"), [(Wider, "3,"), (Longer, "another is (1,)")])
def test_a_class_that_has_changed_is_named(saved: Path, changed: type[nn.Module], shape: str) -> None:
    with refused("own_networks:Good", shape):
        dpgen.load(saved, networks=[changed])


# -- the command line ------------------------------------------------------------------------------------------------


def test_the_options_of_the_command_line() -> None:
    root = Path(dpgen.__file__).parents[1] / "configs"
    network = ["--network=own_networks:Good", '--network_options={"hidden": 3}']
    config = parse_job(["--model=dpgm", *network], config_root=root).model.options
    assert (config.network, config.network_options) == ("own_networks:Good", {"hidden": 3})
    bank = config.resolved(n_classes=3).bank(D, 0)
    assert (bank.k, bank.architecture()["network_options"]) == (3, {"hidden": 3})
    with refused("network_options"):
        parse_job(["--model=dpgm", network[0], "--network_options=3"])


def test_commands_import_the_network_that_a_person_names(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unimported(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(["sample", str(saved)]) == 2
    assert main(["sample", str(saved), "--network", "absent_package:Net"]) == 2
    assert not (tmp_path / "synthetic.npz").exists()
    assert exit_code(lambda: main(["sample", str(saved), "--network", "own_networks:Good"])) == 0
    assert (tmp_path / "synthetic.npz").exists()


@pytest.mark.usefixtures("quiet")
def test_a_run_that_was_killed_while_it_was_evaluated_is_finished_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ["--component=vae", "--network=own_networks:Good", '--network_options={"hidden": 3}']
    sizes = ("--hidden=", "--latent=", "--component=")
    own = [option for option in tiny.arguments(tmp_path) if not option.startswith(sizes)]
    monkeypatch.setattr(import_module("dpgen.run"), "_evaluated", dies)
    with refused("the same command", error=KeyboardInterrupt, paid=True):
        dpgen.run(parse_job([*own, *network]))
    monkeypatch.undo()
    unimported(monkeypatch)
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "which has not been imported" in capsys.readouterr().err
    assert "own_networks" not in sys.modules
    outcome = dpgen.run(parse_job([*own, *network]))
    assert outcome.release.statement.epsilon > 0


def dies(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_settings_made_for_another_component_are_left_out() -> None:
    """The usual ones altogether; a file that is asked for and chooses another network is refused."""
    root = Path(dpgen.__file__).parents[1] / "configs"
    network = "--network=own_networks:Good"
    assert parse_job(["--model=dpgm", network], config_root=root).base is None
    assert parse_job(["--model=dpgan", "--network=mlp"], config_root=root).base is not None
    with refused("component", "network"):
        parse_job([f"--config={root / 'dpgm_digits.yaml'}", network])


def test_a_path_that_a_person_types_is_that_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    front = ModuleType("front")
    front.Net = Good  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "front", front)
    assert made(network=imported("front:Net")).architecture()["network"] == "own_networks:Good"
