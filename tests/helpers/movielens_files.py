"""Tiny MovieLens folders in the formats of the real ones."""

from collections.abc import Sequence
from pathlib import Path

FLAGS = ("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
         "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western")  # fmt: skip

MOVIES = {
    "1": ("Toy Café (1995)", "Animation|Children's|Comedy"),
    "2": ("Heat: Two (1995)", "Drama|War"),
    "3": ("Odd", "Comedy"),
}
USERS = {"1": 24, "2": 53, "3": 17, "4": 30}
RATINGS = [("1", "1", 5), ("1", "2", 3), ("2", "2", 4), ("3", "3", 2), ("3", "1", 2), ("1", "3", 2)]
"""User 4 rates nothing."""


def write_100k(root: Path, ratings: Sequence[tuple[str, str, int]] = RATINGS, users: dict[str, int] = USERS) -> Path:
    folder = root / "ml-100k"
    folder.mkdir(parents=True)
    (folder / "u.data").write_text("".join(f"{u}\t{m}\t{r}\t881250949\n" for u, m, r in ratings))
    (folder / "u.user").write_text("".join(f"{u}|{age}|M|technician|85711\n" for u, age in users.items()))
    lines = []
    for movie, (title, genres) in [*MOVIES.items(), ("9", ("unknown", "unknown"))]:
        flags = "|".join(str(int(name in genres.split("|"))) for name in FLAGS)
        lines.append(f"{movie}|{title}|01-Jan-1995||http://us.imdb.com/M/title-exact?x|{flags}\n")
    (folder / "u.item").write_bytes("".join(lines).encode("latin-1"))
    return folder
