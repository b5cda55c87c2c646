"""Fits to people and their rows: the laws of a chain, public rules, intervals, bad options."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fixed_source import FixedKeySource
from refusals import refused
from smoke import linked_tables

import dpgen
from dpgen.data.toy import PATIENTS, VISITS, simulated_patients
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.relational import domains
from dpgen.systems.relational.chains import Chain, Tree, TreeFitter
from dpgen.systems.relational.draws import picked
from dpgen.systems.relational.fit import fit
from dpgen.systems.relational.plan import RelationalConfig, RelationalPlan
from dpgen.systems.relational.sums import WHOLE, Branch, Counts, Histories, Layout, Shape
from dpgen.systems.tables.marginals import Coarsening
from dpgen.systems.tables.mixture import Mixture

SHAPE = Shape((2, 3, 5), (Branch((3, 2, 4, 2), ("all", "all", "later", "first"), 4),))
HISTORIES = Shape((2, 3), (Branch((3, 2), ("all", "first"), 3),))
TREE = Shape(
    (2, 4, 3),
    (
        Branch((2, 4, 3, 2), ("all", "all", "later", "first"), 3, count=1),
        Branch((2, 3), ("all", "first"), 2, count=2),
        Branch((3, 2), ("all", "later"), 3, parent=1, count=1),
    ),
)
"""Rows of people in two tables, and rows of the rows in the first one."""


def whole(shape: Shape) -> Layout:
    return Layout(shape, (tuple(Coarsening.full(shape.of(i)) for i in range(len(shape.tables) + 1)),))


def random_tree(shape: Shape, classes: int = 3, row_classes: int = 4, seed: int = 0) -> Tree:
    rng = np.random.default_rng(seed)

    def stacked(sizes: tuple[int, ...], k: int) -> Any:
        return np.concatenate([rng.dirichlet(np.ones(size), k).T for size in sizes]).astype(np.float32)

    def law(n: int, k: int) -> Any:
        return rng.dirichlet(np.ones(k), n).astype(np.float32)

    people, chains = Mixture(stacked(shape.people, classes), law(1, classes)[0], shape.people), []
    for branch in shape.tables:
        above = row_classes if branch.parent else classes
        rows = Mixture(stacked(branch.sizes, row_classes), law(1, row_classes)[0], branch.sizes)
        laws = (law(above, row_classes), law(above, row_classes), law(row_classes, row_classes))
        chains.append(Chain(rows, *laws, rng.uniform(0.2, 0.8, above).astype(np.float32)))
    return Tree(people, tuple(chains))


def drawn(tree: Tree, shape: Shape, n: int, seed: int = 1) -> Histories:
    """People of a tree, drawn one after the other as its formula says."""
    rng = np.random.default_rng(seed)

    def pick(law: Any, given: Any) -> Any:
        return picked(law, given, rng.random(len(given)))

    classes = [rng.choice(len(tree.people.weights), n, p=tree.people.weights / tree.people.weights.sum())]
    tables = [np.stack([pick(tree.people.block(c).T, classes[0]) for c in range(len(shape.people))], 1)]
    starts = []
    for number, (branch, chain) in enumerate(zip(shape.tables, tree.chains), 1):
        z, counts = classes[branch.parent], tables[branch.parent][:, branch.count] + shape.least(number)
        steps, w = [], np.zeros(len(z), np.int64)
        for t in range(branch.most):
            stays = rng.random(len(z)) < chain.kept[z]
            w = pick(chain.first, z) if t == 0 else np.where(stays, pick(chain.steps, w), pick(chain.usual, z))
            steps.append(w)
        classes.append(np.stack(steps, 1)[np.arange(branch.most)[None] < counts[:, None]])
        tables.append(np.stack([pick(chain.rows.block(c).T, classes[-1]) for c in range(len(branch.sizes))], 1))
        starts.append(np.r_[0, counts.cumsum()])
    return Histories(tables[0], tables[1:], starts)


@pytest.mark.parametrize("shape", [HISTORIES, TREE], ids=["histories", "four tables"])
def test_laws_are_those_of_drawn_people(shape: Shape) -> None:
    """Every cell of every table lies within 5 standard errors of its mean over 200,000 people."""
    n, tree, layout = 200_000, random_tree(shape), whole(shape)
    counts = Counts.of(drawn(tree, shape, n), layout).values / WHOLE
    expected = layout.flat(tree.blocks(shape))
    measured = np.concatenate([layout.cells(table).ravel() for table in layout.tables(0)])
    far = np.abs(counts - n * expected)[measured] / np.sqrt(n * expected[measured] + 1)
    assert far.max() < 5


TOLD = Shape((2, 3), (Branch((3, 3), ("all", "all"), 2, count=1), Branch((2,), ("all",), 2, parent=1, count=1)))


def test_a_fit_finds_what_it_was_told() -> None:
    layout = whole(TOLD)
    target = layout.flat(random_tree(TOLD, 2, 2).blocks(TOLD))
    even = [[np.full(size, 1 / size) for size in TOLD.of(i)] for i in range(3)]
    generator = torch.Generator().manual_seed(0)
    fitter = TreeFitter(layout, even, 1000.0, classes=(6, 5), information=0.0, generator=generator)
    cells = [layout.cells(table) for table in layout.tables(0)]
    fitter.measure([(table, 1000.0 * target[own], 10.0) for table, own in zip(layout.tables(0), cells)])
    assert fitter.run(400, 0.05, 0.005) < 0.05
    found = layout.flat(fitter.tree.blocks(TOLD))
    assert max(0.5 * np.abs(found[own] - target[own]).sum() for own in cells) < 0.02


def test_what_people_say_of_all_rows_is_not_put_into_the_first_one() -> None:
    """Of a column of people and one of rows that agree in .8 of all rows, nothing said of the place of a row."""
    shape = Shape((2, 4), (Branch((2,), ("all",), 3, count=1),))
    layout = whole(shape)
    shares = [[np.full(2, 0.5), np.array([0.01, 0.01, 0.01, 0.97])], [np.full(2, 0.5)]]
    agree = np.array([[0.4, 0.1], [0.1, 0.4]])
    table = next(t for t in layout.tables(0) if t.block == ("both", "person", "all") and (t.left, t.right) == (0, 0))
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        fitter = TreeFitter(layout, shares, 1000.0, classes=(8, 8), information=40.0, generator=generator)
        fitter.measure([(table, 1000.0 * agree, 12.0)])
        fitter.run(400, 0.05, 0.001)
        tree = fitter.tree
        (chain,), weights = tree.chains, tree.people.weights
        law, laws = chain.first, list[Any]()
        for _ in range(3):
            joint = (tree.people.block(0) * weights) @ law @ chain.rows.block(0).T
            laws.append(float(np.trace(joint / joint.sum())))
            law = (1 - chain.kept)[:, None] * chain.usual + chain.kept[:, None] * (law @ chain.steps)
        assert laws[0] > 0.65
        assert laws[0] - laws[2] < 0.05, laws


def test_log_probabilities_are_sums_over_all_classes() -> None:
    """Of one person with three rows: by every chain of classes."""
    (chain,) = random_tree(SHAPE).chains
    rng = np.random.default_rng(3)
    rows = np.stack([rng.integers(0, size, 3) for size in SHAPE.of(1)], 1)
    spans = SHAPE.tables[0].spans
    logs, last = chain.forward(chain.seen(rows, np.arange(3), spans), np.array([0, 3]))
    total = np.zeros((3, 4))
    for z in range(3):
        for path in product(range(4), repeat=3):
            chance = chain.first[z, path[0]]
            for before, after in pairwise(path):
                chance *= (1 - chain.kept[z]) * chain.usual[z, after] + chain.kept[z] * chain.steps[before, after]
            for t, (w, row) in enumerate(zip(path, rows)):
                there = [t > 0 if span == "later" else t == 0 if span == "first" else True for span in spans]
                chance *= np.prod([chain.rows.block(c)[row[c], w] for c in range(4) if there[c]])
            total[z, path[-1]] += chance
    assert np.allclose(np.exp(logs[0]), total.sum(1), rtol=1e-4)
    assert np.allclose(last[0], total / total.sum(1, keepdims=True), atol=1e-4)


def test_intervals_know_that_people_are_a_sample() -> None:
    """With next to no noise the standard error of a share of 600 people is near that of a sample."""
    tables = simulated_patients(600)
    fast: dict[str, Any] = {"method": "independent", "classes": 1, "row_classes": 1, "steps": 20, "max_rows": 2}
    options = fast | {"schema": dict(VISITS), "people_schema": dict(PATIENTS)}
    release = dpgen.fit(tables, epsilon=50.0, person="patient", order={"visits": "date"}, **options)

    def statistic(found: Any) -> dict[str, float]:
        return {"diabetic": found["patients"]["diabetic"].mean(), "trauma": (found["visits"]["ward"] == "trauma").mean()}

    found = dpgen.intervals(release, statistic, replicates=2, random_state=0)
    share = tables["patients"]["diabetic"].mean()
    std = (share * (1 - share) / 600) ** 0.5
    assert std / 4 < found.loc["diabetic", "std"] < 4 * std
    assert abs(found.loc["diabetic", "estimate"] - share) < 3 * std
    assert found.loc["trauma", "lower"] < found.loc["trauma", "estimate"] < found.loc["trauma", "upper"]


def test_columns_in_a_writing_of_their_own_have_intervals_and_targets() -> None:
    """Truths in words and money are fitted again, and drawn last, as they were."""
    rng, n = np.random.default_rng(0), 800
    people = pd.DataFrame({"pid": np.arange(n), "rich": np.where(rng.random(n) < 0.3, "yes", "no")})
    rows = pd.DataFrame({"pid": rng.integers(0, n, 2000)})
    cost = rng.integers(1, 9, 2000) + 4.0 * (people["rich"].to_numpy()[rows["pid"]] == "yes")
    rows["cost"], rows["paid"] = [f"${value:.2f}" for value in cost], np.where(rng.random(2000) < 0.8, "yes", "no")
    fast = {"rounds": 4, "classes": 8, "row_classes": 8, "steps": 100, "max_rows": 5, "target": "people.rich"}
    release = dpgen.fit({"people": people, "rows": rows}, epsilon=50.0, person="pid", **fast)

    def statistic(found: Any) -> dict[str, float]:
        numbers = found["rows"]["cost"].str.lstrip("$").astype(float)
        of_rich = found["rows"]["pid"].isin(found["people"].loc[found["people"]["rich"] == "yes", "pid"])
        paid = (found["rows"]["paid"] == "yes").mean()
        return {
            "rich": (found["people"]["rich"] == "yes").mean(),
            "paid": paid,
            "more": numbers[of_rich].mean() - numbers.mean(),
        }

    truth = pd.Series(statistic({"people": people, "rows": rows}))
    found = dpgen.intervals(release, statistic, replicates=2, random_state=0)
    assert ((found["estimate"] - truth).abs() < [0.06, 0.06, 1.2]).all()
    assert ((pd.Series(statistic(release.sample(4000, random_state=0))) - truth).abs() < [0.05, 0.05, 1.2]).all()


def test_histories_alone_come_back_as_one_table() -> None:
    visits = simulated_patients(300)["visits"]
    release = dpgen.fit(
        visits, epsilon=5.0, person="patient", order="date", max_rows=3, classes=2, row_classes=2, rounds=1, steps=20
    )
    rows = release.sample(60, random_state=0)
    assert isinstance(rows, pd.DataFrame)
    assert rows.columns.tolist() == visits.columns.tolist()
    assert rows["patient"].nunique() == 60
    said = {fact.fact for fact in release.statement.facts}
    assert Fact.BOUGHT in said
    assert Fact.BOUGHT_DOMAINS not in said, "of a release of its own"


def test_tables_apart_spend_more_on_what_nobody_knows() -> None:
    """A value that is not bought is lost, which costs a small population more than noise does."""
    options: dict[str, Any] = {"classes": 1, "row_classes": 1, "rounds": 1, "picks": 1, "steps": 1, "max_rows": 2}
    stds = []
    for method in ("linked", "apart"):
        release = dpgen.fit(
            simulated_patients(60), epsilon=1.0, person="patient", order={"visits": "date"}, method=method, **options
        )
        stds.append(next(own["noise_std"].min() for own in release.measured() if own["columns"] == ["patients.region"]))
    assert stds[0] > 1.4 * stds[1]


def test_rules_of_a_fit_see_noisy_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, measured, discovery = list[float](), domains.measured, domains.Discovery

    def rule(mu: float, n: float, with_rows: float, columns: tuple[int, int]) -> Any:
        seen.extend((n, with_rows))
        return measured(mu, n, with_rows, columns)

    def bought(source: Any, draft: Any, budget: Any, n: float, shares: Any) -> Any:
        seen.append(n)
        return discovery(source, draft, budget, n, shares)

    monkeypatch.setattr(domains, "measured", rule)
    monkeypatch.setattr(domains, "Discovery", bought)
    data, plan = linked_tables(), RelationalPlan(epsilon=0.5)
    config = RelationalConfig(classes=1, row_classes=1, rounds=1, picks=1, steps=1)
    fit(data, plan=plan, config=config, curator=Curator(plan.open_ledger(), source=FixedKeySource()), runtime=Runtime())
    assert len(seen) == 6
    assert not {data.n, int((np.diff(data.tables[0].starts) > 0).sum())} & {*seen}


def test_a_small_population_is_not_linked() -> None:
    plan = RelationalPlan(epsilon=0.1)
    config = RelationalConfig(classes=3, row_classes=2, rounds=1, steps=20)
    made = fit(
        linked_tables(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=Runtime(progress_bar=False)
    )
    assert "worth their noise from about epsilon" in str(made)
    assert made.epsilon <= 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "joint"}, ["method is 'joint'"]),
        ({"classes": 0}, ["classes is 0"]),
        ({"row_classes": 5000}, ["row_classes is 5000"]),
        ({"rounds": 0}, ["rounds is 0"]),
        ({"picks": 0}, ["picks is 0"]),
    ],
)
def test_bad_options(options: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        RelationalConfig(**options)
