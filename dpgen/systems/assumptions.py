"""What the statements of several systems rest on, in words."""

ONE_RECORD = (
    "one person is one record; neighbouring data sets differ in one line of the file that is not for evaluation: the test part "
    "is not protected"
)
CHOSEN_BLIND = "all options, and whatever else is called public, were chosen without looking at the private data"
SECURE_NOISE = (
    "noise comes from AES-256-CTR under keys of the operating system; an adversary sees what is released, not memory or "
    "run time"
)
EXACT_INTEGERS = "integer noise and selections are exact to 2^-128 in total variation, which delta leaves out"
ROUNDED_FLOATS = (
    "noise on sums is floating point: noisy values are rounded to a grid, which removes the known attack on the low bits but "
    "is no proof"
)
