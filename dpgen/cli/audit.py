"""`dpgen audit --model NAME`: try a system's claim on neighbouring data sets."""

from jsonargparse import ArgumentParser

from dpgen.auditing.options import AuditOptions, parse_audit, quick_options, sources_of
from dpgen.cli.main import Ended
from dpgen.options import add_options, choose, split_options
from dpgen.systems.registry import systems

EXIT_CODES = "exit code: 0 consistent, 1 VIOLATED, 2 bad arguments"


def main(arguments: list[str]) -> str | Ended:
    """The finding; exit code 1 if the claim is violated."""
    if {"--help", "-h"} & set(arguments):
        return usage([argument for argument in arguments if argument not in ("--help", "-h")])
    job = parse_audit(arguments)
    from dpgen.auditing import audit

    finding = audit(job)
    return Ended(finding.to_text(), int(finding.violated))


def usage(arguments: list[str]) -> str:
    """Help: in general, or the options of the model that it names, with the defaults of an audit, whose fits are small."""
    given = split_options(arguments)
    parser = ArgumentParser(prog="dpgen audit", epilog=EXIT_CODES, add_help=False)
    if "model" not in given:
        parser.usage = "dpgen audit [--model NAME] [--key value ...]"
        parser.description = f"models: {', '.join(systems())}; add --model NAME for its options"
        return add_options(parser, {"audit": AuditOptions}).format_help().rstrip()
    model = choose("model", given["model"], list(systems()))
    parser.usage = f"dpgen audit --model {model} [--key value ...]"
    return add_options(parser, sources_of(model), defaults=quick_options(model, given)).format_help().rstrip()
