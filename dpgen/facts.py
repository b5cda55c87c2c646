"""Parts of statements: the facts that fits and loaders return, and the one sentence of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any


class Section(Enum):
    """The part of a statement that a fact stands in, by its name in JSON."""

    WARNINGS = "warnings"
    """To be known before the release is used."""
    MADE = "made"
    """The way in which the release was made."""
    UNIT = "protected"
    """The difference of neighbouring data sets."""
    PRICE = "price"
    """Releases that the epsilon was paid for."""
    ASSUMPTIONS = "assumptions"
    """The guarantee holds if this is true."""
    AS_IS = "as_is"
    """Released as it is in the data, or public by declaration."""
    NOT_COVERED = "not_covered"
    """Limits of the guarantee."""
    BESIDE = "beside"
    """Other releases."""
    PRIVATE = "not_for_publication"
    """Files that must not be published beside the release."""

    def __call__(self, sentence: str) -> tuple[Section, str]:
        """A fact of this part."""
        return self, sentence


_W, _M, _U, _P, _A, _S, _N, _B, _X = Section


class Fact(Enum):
    """A fact by name: the section it stands in, and its sentence with the names of its values in braces.

    >>> Fact.PUBLIC_SIZE(n=50).sentence
    'The number of records, 50, was declared public.'
    """

    # what is protected
    ONE_RECORD = _U(
        "Neighbouring data sets differ in one record. A person with several is protected less, unless `unit` names the column "
        "of people.",
    )
    ONE_IMAGE = _U("Neighbouring data sets differ in one image. Whoever is on several images is protected less.")
    ONE_USER = _U("One user is one row. A person under two names, or in two files or runs, is protected less: costs add up.")
    ONE_PERSON = _U(
        "One person is one value of the column {unit}, which is no data. Neighbouring data sets differ in one person, with all "
        "rows. At most {rows} of a person's rows are used: those with the smallest keyed hashes of their contents, a choice "
        "that depends on this person's rows alone. All counts are of rows.",
    )
    ONE_PERSON_TRAINED = _U(
        "Neighbouring data sets differ in one person, with all records. At most {rows} records of a person are used, evenly "
        "spaced in the order of the data. Their gradients are added up and clipped together. All counts are of people.",
    )
    ONE_PERSON_LINKED = _U(
        "One person is one value of the person's column, with all columns of the person and all of their rows. Neighbouring "
        "data sets differ in one such person. All counts are of people: every person counts for one in every table, however "
        "many rows they have.",
    )
    NAMES_OTHERS = _U(
        "{column} names other people. Where a person comes or goes, all others keep their rows: a row that names somebody who "
        "is not there names nobody. Sums of whom rows name have their own sensitivity, for those who name and are named.",
    )
    WINDOW_OF_ROWS = _U(
        "At most {most} rows of a person are used. Of a person with more it is a window of {most} successive ones, chosen by a "
        "keyed hash of the person; rows of one time are ordered by keyed hashes of their contents.",
    )
    ROWS_IN_NO_ORDER = _U(
        "No column orders the rows of a person: they are in the order of keyed hashes of their contents. At most {most} are "
        "used, of a person with more a keyed sample of {most}.",
    )
    ROWS_BOUGHT = _U(
        "At most {most} rows of a person are used: by noisy counts, 95 % of people have no more. Of a person with more it is a "
        "window of {most} that follow each other in {order}, chosen by a keyed hash of the person.",
    )
    ROWS_OF_ROWS_BOUGHT = _U(
        "At most {most} rows are used of those that hang on one row of another table: by noisy counts, 95 % of rows have no "
        "more. Of one with more it is a window of {most} that follow each other in {order}, chosen by a keyed hash of the "
        "person.",
    )
    ROWS_OF_ROWS = _U(
        "At most {most} rows of {table} are used for each person, or row, that they hang on; of more it is a window of {most} "
        "successive ones, chosen by a keyed hash of the person.",
    )
    ANY_DATA = _U("Any data set may replace any other (integral privacy): of one person's data, this is local privacy.")
    LOCAL = _U(
        "This is local privacy: each user's draws are protected against everybody who sees them, whatever other users release.",
    )
    MISSING_DROPPED = _U(
        "Rows with a missing value are left out, each for its own values alone. Neighbouring data sets differ in {unit}, which "
        "may be complete or not.",
    )
    NOISY_SIZE = _U("The number of records is private. Where it is needed a noisy number was paid for.")
    SYNTHETIC = _U("The private data are synthetic: they are nobody's.")
    KNOWN_TARGET = _U("The points are synthetic, and their bounds come from the known target.")

    # what goes out as it is
    VERBATIM = _S("Values of {columns} go out as they are, where enough rows share them to be seen above the noise.")
    KNOWN_SIZE = _S("The number of records is public: neighbouring data sets have equally many.")
    PUBLIC_SIZE = _S("The number of records, {n}, was declared public.")
    PUBLIC_CONTAINER = _S(
        "The container, names and order of the columns are public, and so are declared types and the order of ordered "
        "categories: samples come back in them.",
    )
    PUBLIC_LAYOUT = _S("The container, names and order of the columns are public. Their types are not.")
    PUBLIC_NAMES = _S("The names of the columns are public.")
    PUBLIC_FOLDERS = _S("Names of folders, which are the classes, the size of images and whether they have colours are public.")
    PUBLIC_IMAGE_SIZE = _S("The size of the images, and whether they have colours, are public.")
    PUBLIC_BOUNDS = _S("The columns and their bounds {bounds} are public.")
    PUBLIC_COLUMNS = _S("Bounds, resolution and names of the columns were declared public.")
    PUBLIC_SCHEMA = _S("Types, domains and constraints of {columns} are public by declaration.")
    PUBLIC_USERS = _S("User names, categories, groups, the prior and the number of draws are public.")
    PUBLIC_MODULE = _S(
        "The module's hyperparameters, buffers and first weights are public: they are released, or show in what is.",
    )

    # how it was made
    CHOSEN_MODEL = _M("The model, {model}, was chosen by the container, types and shape of the data alone.")
    BOUGHT = _M("What was not known of {columns} (types, gaps, categories, bins) was bought with {share} of the budget.")
    RULES = _M("By noisy counts of violations, samples keep these rules: {columns}. Finding them cost {share} of the budget.")
    GENERATED_KEYS = _M(
        "By noisy counts most values of {columns} have one pattern. Samples have new values of this pattern, each of them "
        "once; whether values of the data repeat was not measured.",
    )
    UNREPEATED_KEYS = _M(
        "By noisy counts most values of {columns} have one pattern and do not repeat: noise hides up to {share} % that do. "
        "Samples have new values of this pattern, each of them once.",
    )
    DRAWN_CODES = _M(
        "Values of {columns} that few rows share are not released. In their place samples have random ones with the same first "
        "characters, or the same pattern, as noisy counts show them.",
    )
    HIDDEN_GAPS = _M("Samples have no gaps in {columns}: noise hides up to about {share} %.")
    HIDDEN_ENDS = _M(
        "Samples of {columns} end where noise hides what lies beyond: up to about {share} % at an end, which were moved to it.",
    )
    CLAMPED_COLUMNS = _M(
        "Values outside of the bounds, if any, were moved to the nearer bound. Their noisy number is released."
    )
    CLAMPED_POINTS = _M("Coordinates outside of the bounds, if any, were moved to the nearer bound.")
    ORPHANS_LEFT_OUT = _M("Rows whose person is not among the people are left out, each for its own person alone.")
    NAMED_PRIOR = _M("The prior is {origin}.")
    RAISED_PRIOR = _M(
        "{count} of {n} atoms of the prior are 0: they are raised to {floor:g}/n, the others are scaled to fit.",
    )
    SELECTED = _M(
        "The release is {name}, the best of K runs, each of a combination drawn at random from a public list ({names}), by the "
        "mean error of counts with noise of {noise:g} records. K is poisson of mean {runs:g} and secret, and so are all other "
        "runs.",
    )
    MEASURED_MARGINALS = _M("{count} marginals of two or three columns were chosen by the exponential mechanism and measured.")
    WORKLOAD = _M(
        "Questions of the user were measured before any marginal was chosen, with {share} of the budget (in brackets the noise "
        "std of a count or a mean, then the error of the model's answer): {questions}.",
    )
    NOT_ASKED = _W(
        "Questions of the user were not measured, as a column was left out, or is no number whose mean could be asked: "
        "{questions}.",
    )
    PRIOR = _M(
        "A prior stood beside the noisy counts: {prior}. It helped with {used}. That cost no epsilon.",
    )
    WHOLE_TABLE = _M(
        "The table of all {columns} columns together, {cells} cells, is one release (noise std {std} of each count), so "
        "dependence of any order is in the model.",
    )
    BLOCKS = _M(
        "Blocks of three to seven columns that depend on each other in a way that fewer of them do not show were looked for by "
        "the exponential mechanism, with {share} of the budget: {found}.",
    )
    MEASURED_LINKED = _M(
        "{count} tables of two columns (of people, of people and rows, of one row, of two rows of a person, of successive "
        "rows) were chosen by the exponential mechanism and measured.",
    )
    TARGET_TABLES = _M(
        "{count} tables of {column} with other columns of people and of their rows were measured first, with {share} of the "
        "budget. In samples {column} is drawn last, given these.",
    )
    FREQUENT_ITEMS = _M(
        "Conjunctions of the {count} items with the greatest noisy counts are fitted. Other items are independent given how "
        "many a set holds, rare ones shrunk towards their common prior.",
    )

    # before it is used
    LARGE_DELTA = _W(
        "Delta is {delta:g}, and there are about {n} {records}: a delta of 1/n or more does not rule out that one of them "
        "is published whole. Choose one far below {most:.2g}.",
    )
    LARGE_EPSILON = _W("At an epsilon of {epsilon} the guarantee alone rules out little.")
    NO_SECOND_RUN = _W("When this was written, the shared budget {file} had no room for a second run like this one.")
    UNTRAINED = _W("NOTHING WAS TRAINED: the budget was spent before the first step. The networks have learnt nothing.")
    NOT_FITTED = _W("The model is a public prior without any image: by noisy counts there are too few images at this budget.")
    LEFT_OUT = _W("Left out of the release: {columns}. Too few of their values are frequent enough to be seen above noise.")
    LEFT_OUT_AS = _W("Noisy counts of {columns} show {form}. {way}")
    NOT_IN_SCHEMA = _W("Left out of the release: {columns}. The schema, or columns and drop, say so.")
    INDEX_LEFT_OUT = _W("Left out of the release: the index, {names}, which is no column.")
    UNSEEN = _W("At this budget noise hides the values of {columns}: what comes back is not like them.")
    CONSTANT = _W("Samples have a single value in {columns}. What else the data may have there is not in the release.")
    MOVED = _W(
        "About {share} % (± {std}) of {column} lay {where} {bound} and were moved there. Declare minimum and maximum where "
        "they are known.",
    )
    OTHER_FORMS = _W("About {share} % of {column} (noise {std} %) are no {kind}: they came in as gaps.")
    DAY_OR_MONTH = _W(
        "Dates of {column} are read as {format}: noise hides whether they are {other}. Say day_first or month_first (dates).",
    )
    MOVED_OTHERS = _W("Values of {columns} were moved to the ends of their ranges, too.")
    WIDE_BINS = _W(
        "By noisy counts, values of {columns} are spread inside of wide bins, which hold more than a fifth of them each: tell "
        "bins that are known, or spend more on fewer columns.",
    )
    NO_DEPENDENCE = _W("Columns are released one by one: dependence between columns is not modelled.")
    INDEPENDENT = _W("Columns are independent in the model: no marginal of several columns was measured.{enough}")
    NO_RULES = _W(
        "Rules between columns (orders, dependencies) were not looked for: with about {n} records they can be told from noise "
        "from about {more} times this epsilon on. A constraint in the schema, such as less_equal, is kept at any epsilon.",
    )
    INDEPENDENT_BITS = _W("Columns are independent in the model: {why}.")
    NOT_LINKED = _W(
        "In the model, the values of rows do not depend on the person or on the row before: for about {people} people with "
        "rows and so many columns such tables are worth their noise from about epsilon {more} on.",
    )
    TIMES_APART = _W(
        "{column} is drawn apart from {order}, by which rows are ordered. If one of them is never before the other, say so in "
        "the schema of the rows: {{'less_equal': ['{order}', '{column}']}}, or the other way round.",
    )
    HIDDEN_PAIRS = _W(
        "Noise hides whom the rows of {column} name: in samples they name people of any kind. From about epsilon {more} on it "
        "would show that people of one group are named twice as often as by chance.",
    )
    POOLED_CLASSES = _W(
        "Classes {classes} have the Gaussian of all {records}: by noisy counts they have too few {records} at this budget.",
    )

    # what epsilon was paid for
    BOUGHT_DOMAINS = _P("Domains of {columns} are a private release of their own ({price}).")
    COST_OF_A_USER = _P(
        "This run costs one user {draws} x {per_draw:g} = {epsilon:g}, however many users there are. What the same "
        "ledger paid for earlier runs comes on top and is part of the stated epsilon.",
    )
    BUDGET_OF_A_COLUMN = _P("The budget was spent on one column: {split}.")
    SPLIT_BUDGET = _P("The budget was split over {columns} columns, which cost it together (each by itself: {split}).")

    # the guarantee holds if
    CHOSEN_BLIND = _A("All options, and whatever else is called public, were chosen without looking at the private data.")
    SATISFIED = _A(
        "The data satisfy what is declared of them (columns, types, ranges, classes, categories). Data that do not are refused "
        "before anything is spent, and only the holder of the data sees why.",
    )
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
        "The code of the network {path} gets one record at a time, so its loss is of that record alone. It keeps nothing of "
        "it: this was tried on public records, and is no proof.",
    )
    OWN_CRITIC = _A(
        "The code of the critic {path} gets one record at a time, so its score is of that record alone. It keeps and hands on "
        "nothing of it: this was tried on random records, and is no proof.",
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
    TEST_PART = _N(
        "Test {what} were held out ({origin}). Nothing that is released depends on them, but for what this statement says was "
        "read from the data. Scores depend on them, without noise, and are not released.",
    )
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
    PUBLIC_PRIOR = _N(
        "The rows of the prior are declared public. Whoever they are of is not protected by this release: rows, or counts, of "
        "the same people are not public.",
    )
    READ_RELEASE = _N(
        "The run reads a release (sha256 {sha256}) that is declared to be of other people's records, or of public ones. Its "
        "own statement alone covers these, {guarantee}. It is no part of this epsilon.",
    )

    # what else was released, and what must not be
    LOGS = _B("Logs hold time and memory (performance/) and the figures of metrics.json (final). All else in them is released.")
    RELEASED_LOSS = _B("Every training step releases the mean loss of its records, too, with noise of its own.")
    NO_TEST_PART = _X("Scores compare with the private data themselves: nothing was held out.")
    EVALUATED = _X(
        "Scores, reference values, tables and pictures of the evaluation look at private or test records, or at the density "
        "behind draws: computed on private records without noise, not for publication.",
    )

    # a system or a network of others, and statements of dpgen 0.4
    ASSUMED = _A("{text}")
    AGREED = _M("{text}")
    UNCOVERED = _N("{text}")

    def __init__(self, section: Section, sentence: str) -> None:
        self.section, self.sentence = section, sentence

    def __call__(self, **values: Any) -> Said:
        """The fact with its values, those of its sentence: numbers, texts, tuples of texts."""
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
        """The sentence with all names of lists."""
        return self._with(most=10**9)

    @property
    def short(self) -> str:
        """The sentence with the first eight names of lists."""
        return self._with(most=8)

    def _with(self, most: int) -> str:
        shown = {name: listed(value, most) if isinstance(value, tuple) else value for name, value in self.values}
        return self.fact.sentence.format(**shown)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"fact": self.fact.name, **dict(self.values)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Said:
        """From `to_dict`; refused where there is no such fact, or it has other values."""
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        if (name := str(own.pop("fact", ""))) not in Fact.__members__:
            raise ValueError(f"fact is {name!r}, which this version of dpgen does not know")
        return Fact[name](**own)


def listed(names: Sequence[str], most: int) -> str:
    """Names in a sentence, the first of them where there are many.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def columns_of(facts: Iterable[Fact | Said], fact: Fact) -> tuple[str, ...]:
    """Columns that a fact names, wherever it stands among others."""
    return tuple(name for one in said(facts) if one.fact is fact for name in dict(one.values)["columns"])


def said(facts: Iterable[Fact | Said]) -> tuple[Said, ...]:
    """Facts with their values, each once, in order."""
    return tuple(dict.fromkeys(fact if isinstance(fact, Said) else fact() for fact in facts))
