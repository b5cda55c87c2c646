"""What statements say: the facts that fits and loaders return, and the one sentence of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any


class Section(Enum):
    """The list of a statement that a fact stands in."""

    ASSUMPTIONS = "assumptions"
    """The guarantee holds if this is true."""
    CONVENTIONS = "conventions"
    """How the guarantee is to be read: what is public by declaration, and what was done."""
    NOT_COVERED = "not_covered"
    """What the guarantee does not protect."""

    def __call__(self, sentence: str) -> tuple[Section, str]:
        """A fact of this list."""
        return self, sentence


_A, _C, _N = Section


class Fact(Enum):
    """A fact by name: the section it stands in, and its sentence with the names of its values in braces.

    >>> Fact.PUBLIC_SIZE(n=50).sentence
    'The number of records, 50, was declared public.'
    """

    # the unit
    ONE_RECORD = _C("One person is one record: neighbouring data sets differ in one record.")
    ONE_IMAGE = _C("One person is one image: neighbouring data sets differ in one image.")
    ONE_ROW = _C("One person is one record: a row with one value in every column.")
    ONE_USER = _C("One user is one row. A person under two names, or in two files or runs, pays once for each.")
    ONE_PERSON = _C(
        "One person is one value of the column {unit}, which is no data. Neighbouring data sets differ in one person, with all "
        "rows. At most {rows} of a person's rows are used: those with the smallest keyed hashes of their contents, a choice "
        "that depends on this person's rows alone. All counts are of rows.",
    )
    ONE_PERSON_LINKED = _C(
        "One person is one value of the person's column, with all columns of the person and all of their rows. Neighbouring "
        "data sets differ in one such person. All counts are of people: every person counts for one in every table, however "
        "many rows they have.",
    )
    WINDOW_OF_ROWS = _C(
        "At most {most} rows of a person are used. Of a person with more it is a window of {most} successive ones, chosen by a "
        "keyed hash of the person; rows of one time are ordered by keyed hashes of their contents.",
    )
    ROWS_IN_NO_ORDER = _C(
        "No column orders the rows of a person: they are in the order of keyed hashes of their contents. At most {most} are "
        "used, of a person with more a keyed sample of {most}.",
    )
    ROWS_BOUGHT = _C(
        "At most {most} rows of a person are used: 95 % of noisy people have no more. Of a person with more it is a window of "
        "{most} that follow each other in {order}, chosen by a keyed hash of the person.",
    )
    ROWS_OF_ROWS_BOUGHT = _C(
        "At most {most} rows are used of those that hang on one row of another table: 95 % of noisy rows have no more. Of one "
        "with more it is a window of {most} that follow each other in {order}, chosen by a keyed hash of the person.",
    )
    ROWS_OF_ROWS = _C(
        "At most {most} rows of {table} are used for each person, or row, that they hang on; of more it is a window of {most} "
        "successive ones, chosen by a keyed hash of the person.",
    )
    ORPHANS_LEFT_OUT = _C("Rows whose person is not among the people are left out, each for its own person alone.")
    ANY_DATA = _C("Any data set may replace any other (integral privacy): of one person's data, this is local privacy.")
    LOCAL = _C(
        "This is local privacy: each user's draws are protected against everybody who sees them, whatever other users release.",
    )
    MISSING_DROPPED = _C(
        "Rows with a missing value are left out, each for its own values alone. Neighbouring data sets differ in {unit}, which "
        "may be complete or not.",
    )

    # sizes and what is public
    KNOWN_SIZE = _C("The number of records is public: neighbouring data sets have equally many.")
    PUBLIC_SIZE = _C("The number of records, {n}, was declared public.")
    NOISY_SIZE = _C("The number of records is private. Where it is needed a noisy number was paid for.")
    PUBLIC_CONTAINER = _C(
        "The container, names, order and types of the data are public, and the order of ordered categories: samples come back "
        "in them.",
    )
    PUBLIC_NAMES = _C("The names of the columns are public.")
    PUBLIC_FOLDERS = _C("Names of folders, which are the classes, the size of images and whether they have colours are public.")
    PUBLIC_IMAGE_SIZE = _C("The size of the images, and whether they have colours, are public.")
    PUBLIC_BOUNDS = _C("The columns and their bounds {bounds} are public.")
    PUBLIC_COLUMNS = _C("Bounds, resolution and names of the columns were declared public.")
    PUBLIC_SCHEMA = _C("The schema of the table (names, types, domains, constraints) is declared public.")
    PUBLIC_USERS = _C("User names, categories, groups, the prior and the number of draws are public.")
    SYNTHETIC = _C("The private data are synthetic: they are nobody's.")
    KNOWN_TARGET = _C("The points are synthetic, and their bounds come from the known target.")
    NO_TEST_PART = _C("There is no test part: an evaluation compares with the private data.")
    CLAMPED_COLUMNS = _C("Values outside the bounds were moved to the nearer bound. Their noisy number is released.")
    CLAMPED_POINTS = _C("Coordinates outside the bounds were moved to the nearer bound.")
    PUBLIC_MODULE = _C(
        "The module's hyperparameters, buffers and first weights are public: they are released, or show in what is.",
    )
    RELEASED_LOSS = _C("Every training step releases the mean loss of its records, too, with noise of its own.")
    SATISFIED = _C(
        "The data satisfy their public schema (columns, types, ranges, classes, categories). Data that do not are refused "
        "before anything is spent, and only the holder of the data sees why.",
    )
    BOUGHT_DOMAINS = _C("Domains of {columns} are a private release of their own ({price}).")
    CHOSEN_MODEL = _C("The model, {model}, was chosen by the container, types and shape of the data alone.")
    BOUGHT = _C("What was not known of {columns} (types, gaps, categories, bins) was bought with {share} of the budget.")
    GENERATED_KEYS = _C("Values of {columns} have one pattern and are not repeated: samples have new ones of this pattern.")
    LEFT_OUT = _C("No value of {columns} is frequent: it is left out of the release.")
    NOT_IN_SCHEMA = _C("The schema does not name {columns}: it is left out of the release.")
    INDEX_LEFT_OUT = _C("The index, {names}, is no column: it is left out of the release.")
    UNSEEN = _C("At this budget noise hides the values of {columns}: what comes back is not like them.")
    WIDE_BINS = _C(
        "Values of {columns} are spread inside of wide bins, which hold more than a fifth of them each: tell bins that are "
        "known, or spend more on fewer columns.",
    )
    MOVED = _C("About {share} % of {column} lay {where} {bound} and were moved there.")
    MOVED_OTHERS = _C("Values of {columns} were moved to the ends of their ranges, too.")
    NAMED_PRIOR = _C("The prior is {origin}.")
    RAISED_PRIOR = _C(
        "{count} of {n} atoms of the prior are 0: they are raised to {floor:g}/n, the others are scaled to fit.",
    )
    COST_OF_A_USER = _C(
        "This run costs one user {draws} x {per_draw:g} = {epsilon:g}, however many users there are. What the same "
        "ledger paid for earlier runs comes on top and is part of the stated epsilon.",
    )
    BUDGET_OF_A_COLUMN = _C("The budget was spent on one column: {split}.")
    SPLIT_BUDGET = _C("The budget was split over {columns} columns, which cost it together (each by itself: {split}).")
    SELECTED = _C(
        "The release is {name}, the best of K runs, each of a combination drawn at random from a public list ({names}), by the "
        "mean error of counts with noise of {noise:g} records. K is poisson of mean {runs:g} and secret, and so are all other "
        "runs.",
    )
    MEASURED_MARGINALS = _C("{count} marginals of two or three columns were chosen by the exponential mechanism and measured.")
    MEASURED_LINKED = _C(
        "{count} tables of two columns (of people, of people and rows, of one row, of two rows of a person, of successive "
        "rows) were chosen by the exponential mechanism and measured.",
    )
    NOT_LINKED = _C(
        "The values of rows do not depend on the person or on the row before: for about {people} people with rows and so many "
        "columns such tables are worth their noise from about {more} times this epsilon on.",
    )
    LOGS = _C("Logs hold time and memory (performance/) and the figures of metrics.json (final). All else in them is released.")

    # the guarantee holds if
    CHOSEN_BLIND = _A("All options, and whatever else is called public, were chosen without looking at the private data.")
    SECURE_NOISE = _A(
        "Noise comes from AES-256-CTR under keys of the operating system. An adversary sees what is released, not memory or "
        "run time.",
    )
    DEVICE_NOISE = _A(
        "Noise on sums of gradients is not: it is drawn on the device, by Philox4x32-10 under 160 fresh bits of the operating "
        "system for each draw. Philox is no cipher. It is assumed that nobody tells it from chance.",
    )
    SECRET_SAMPLING = _A("Sampling masks come from the same generator, and nobody sees the number of records in a draw.")
    SECRET_ALLOCATION = _A(
        "In every epoch each record takes part in one step, which the same generator draws for it alone. Nobody sees the "
        "number of records in a step.",
    )
    SECRET_REPETITION = _A("An adversary does not see how often the program was run.")
    EXACT_INTEGERS = _A("Integer noise and selections are exact to 2^-128 in total variation, which delta leaves out.")
    EXACT_BUT_CORRELATED = _A(
        "Draws but correlated Gaussian noise are exact to 2^-128 in total variation, which delta omits.",
    )
    ROUNDED_FLOATS = _A(
        "Noise on sums is floating point. Noisy values are rounded to a grid, which removes the known attack on the low bits "
        "but is no proof.",
    )
    EXACT_SUMS = _A(
        "What a {record} adds lies on a grid and sums are exact (of at most 2^27), so no rounding depends on other {record}s. "
        "The result of one device serves all of a fit.",
    )
    SAME_GRADIENT = _A("A record's gradient has the same bits beside any others: measured on random ones, not proved.")
    GRADIENT_MARGIN = _A(
        "Beside other records a record's gradient changes by at most {each:.1e} of its norm: ten times the most that random "
        "records showed, not proved. For {records} records in a draw that adds {added:.1e} to the sensitivity, and noise "
        "covers it.",
    )
    SEVERAL_RANKS = _A("The processes that trained together, their machines and the network between them trust one another.")
    BFLOAT16 = _A(
        "Networks ran in bfloat16. A record's gradient is taken not to depend on the other records of its draw, which holds up "
        "to how matrix products of another shape round. Norms, clipping and noise were float32.",
    )
    OWN_NETWORK = _A(
        "The code of the network {path} takes a record's loss from that record and its latent noise alone and keeps nothing of "
        "it. This was tried on random records, and is no proof.",
    )
    OWN_CRITIC = _A(
        "The code of the critic {path} takes a record's score from that record alone, and keeps and hands on nothing of it. "
        "This was tried on random records, and is no proof.",
    )
    OWN_GENERATOR = _A("The code of the generator {path} makes records of its noise and labels alone.")
    OWN_CLIPPING = _A(
        "The code of the clipping policy {path} weighs a record by its own norm and by released values alone, adds no more to "
        "a histogram of norms than it says, and keeps and hands on no norm. Its weights were tried on random norms, which is "
        "no proof.",
    )
    FIXED_IN_ADVANCE = _A(
        "There was no budget to enforce. Which mechanisms ran, how often and with what noise had been fixed before the first "
        "of them, and did not depend on what was released.",
    )
    RESUMED = _A(
        "The run was resumed after it had used the data. Where they were changed in between, what is protected is one record "
        "in all of their versions, which none of them has for evaluation.",
    )
    READ_AGAIN = _A("The table was read more than once. That it did not change meanwhile is assumed where counts agreed.")
    TRUSTED_SAMPLER = _A(
        "The program that makes the draws (here: this machine) sees the users' distributions. It must run at the user or be "
        "trusted.",
    )

    # not covered
    TEST_PART = _N("The test {what} are not protected: evaluation on them adds no noise ({origin}).")
    ABSENT_USERS = _N(
        "Who takes part can be seen: loaders leave out users without events, if there are any. The guarantee hides what the "
        "events of a user of the data are, also that they are none.",
    )
    VALIDATION_PART = _N("Records of validation are not protected: what is logged or chosen by them shows them.")
    READ_CLASSES = _N("The {k} classes were read from the private data: epsilon does not cover which there are.")
    READ_CATEGORIES = _N("The categories were read from the events: epsilon does not cover which of them occur.")
    READ_ITEMS = _N("The items were read from the records ({how}): epsilon does not cover which there are.")
    READ_DOMAINS = _N("Domains of {columns} were read from the private records: epsilon does not cover them.")
    TUNED_CONSTANTS = _N(
        "Constants of the default rules and of the shipped configurations were set on this training split, which no budget "
        "covers. The assumption that options were chosen without looking at the records does not hold for them.",
    )
    TUNED_SETTINGS = _N("Settings that {file} gives may have been tuned on public data of this kind. No budget covers tuning.")
    EVALUATED = _N(
        "Scores, reference values, tables and pictures of the evaluation look at private or test records, or at the density "
        "behind draws: computed on private records without noise, not for publication.",
    )
    READ_RELEASE = _N(
        "The run reads a release (sha256 {sha256}) that is declared to be of other people's records, or of public ones. Its "
        "own statement alone covers these, {guarantee}. It is no part of this epsilon.",
    )
    UNTRAINED = _N("NOTHING WAS TRAINED: the budget was spent before the first step. The networks have learnt nothing.")
    NO_DEPENDENCE = _C("Columns are released one by one: dependence between columns is not modelled.")
    INDEPENDENT = _C("Columns are independent in the model: no marginal of several columns was measured.{enough}")
    POOLED_CLASSES = _C("Classes {classes} have the Gaussian of all {records}: they have too few {records} at this budget.")
    NOT_FITTED = _C("The model is a public prior without any image: there are too few images at this budget.")
    FREQUENT_ITEMS = _C(
        "Conjunctions of the {count} items that were counted most are fitted. Other items are independent given how many a set "
        "holds, rare ones shrunk towards their common prior.",
    )
    INDEPENDENT_BITS = _C("Columns are independent in the model: {why}.")

    # a system or a network of others, and statements of dpgen 0.4
    ASSUMED = _A("{text}")
    AGREED = _C("{text}")
    UNCOVERED = _N("{text}")

    def __init__(self, section: Section, sentence: str) -> None:
        self.section, self.sentence = section, sentence

    def __call__(self, **values: Any) -> Said:
        """The fact with its values, those of its sentence: numbers, texts, lists of them."""
        names = {name for _, name, _, _ in Formatter().parse(self.sentence) if name}
        if names != set(values):
            raise ValueError(f"{self.name} is said with {sorted(values)}; its sentence has {sorted(names)}")
        return Said(self, tuple(sorted(values.items())))


@dataclass(frozen=True)
class Said:
    """A fact with its values."""

    fact: Fact
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def sentence(self) -> str:
        return self.fact.sentence.format(**dict(self.values))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"fact": self.fact.name, **dict(self.values)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Said:
        """From `to_dict`; refused where there is no such fact, or it has other values."""
        own = dict(values)
        if (name := own.pop("fact", None)) not in Fact.__members__:
            raise ValueError(f"fact is {name!r}, which this version of dpgen does not know")
        return Fact[name](**own)


def said(facts: Iterable[Fact | Said]) -> tuple[Said, ...]:
    """Facts with their values, each once, in order."""
    return tuple(dict.fromkeys(fact if isinstance(fact, Said) else fact() for fact in facts))
