"""`dpgen audit --model NAME`: try a system's claim on neighbouring data sets."""

from collections.abc import Mapping
from dataclasses import asdict

from dpgen.auditing.options import AuditOptions, parse_audit, quick_options, sources_of
from dpgen.cli.main import Ended
from dpgen.options import choose, help_text, split_options
from dpgen.systems.registry import systems

EXIT_CODES = "exit code: 0 consistent, 1 VIOLATED, 2 bad arguments"


def main(arguments: list[str]) -> str | Ended:
    """The finding; exit code 1 if the claim is violated."""
    given = split_options(["--help" if argument == "-h" else argument for argument in arguments])
    if "help" in given:
        return usage(given)
    job = parse_audit(given)
    from dpgen.auditing import audit

    finding = audit(job)
    return Ended(finding.to_text(), int(finding.violated), values=asdict(finding) | {"violated": finding.violated})


def usage(given: Mapping[str, str]) -> str:
    """Help: in general, or the options of the model that it names, with the defaults of an audit, whose fits are small."""
    if "model" not in given:
        known = f"models: {', '.join(systems())}; add --model NAME for its options"
        text = "dpgen audit [--model NAME] [--key value ...]"
        return help_text({"audit": AuditOptions}, usage=text, description=known, epilog=EXIT_CODES)
    model = choose("model", given["model"], list(systems()))
    text, small = f"dpgen audit --model {model} [--key value ...]", quick_options(model, given)
    return help_text(sources_of(model), defaults=small, usage=text, epilog=EXIT_CODES)
