"""The JSON schema of what commands write, as the package has it."""

import json
from importlib.resources import files

from jsonschema import Draft202012Validator

OUTPUT = Draft202012Validator(json.loads(files("dpgen").joinpath("output.schema.json").read_text()))
