"""`dpgen sign` and `dpgen verify --key`: what was edited, and what another key has signed, is found."""

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from dpgen.cli.main import main
from dpgen.statement import PrivacyStatement

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run of merr, and two pairs of keys."""
    directory = tmp_path_factory.mktemp("signed")
    np.save(directory / "values.npy", np.arange(100))
    options = [f"--path={directory / 'values.npy'}", "--low=0", "--high=127", "--evaluation=none", "--progress_bar=false"]
    assert main(["train", "--model=merr", "--data=npy", "--epsilon=1", f"--run_dir={directory / 'run'}", *options]) == 0
    for name in ("owner", "other"):
        assert main(["sign", "--new_key", str(directory / f"{name}.pem")]) == 0
    assert main(["sign", str(directory / "run"), "--key", str(directory / "owner.pem")]) == 0
    return directory


@pytest.fixture
def signed(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "signed"))


def verified(directory: Path, name: str = "run", key: str = "owner") -> int:
    return main(["verify", str(directory / name), "--key", str(directory / f"{key}.pem.pub")])


def test_a_signed_run_and_its_model_alone_are_verified(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(signed / "run" / "model", signed / "alone")
    for name in ("run", "alone"):
        assert verified(signed, name) == 0
        assert "signature" in capsys.readouterr().out
    assert main(["verify", str(signed / "run")]) == 0
    assert "signature" not in capsys.readouterr().out


def test_the_private_key_is_for_its_owner_alone(signed: Path) -> None:
    assert stat.S_IMODE((signed / "owner.pem").stat().st_mode) == 0o600


def edited(run: Path) -> None:
    """Whoever edits a statement can also make the checksum that fits."""
    statement = replace(PrivacyStatement.read(run / "privacy.json"), unit="one hospital")
    (run / "privacy.json").write_text(statement.to_json())


def swapped(run: Path) -> None:
    shutil.copy(run / "model" / "model.sig", run / "privacy.sig")


def removed(run: Path) -> None:
    (run / "privacy.sig").unlink()


def torn(run: Path) -> None:
    (run / "privacy.sig").write_text("{")


@pytest.mark.parametrize("change", [edited, swapped, removed, torn])
def test_a_change_is_found(signed: Path, change: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(change)
    change(signed / "run")
    assert verified(signed) == 1
    assert "privacy." in capsys.readouterr().out


def test_another_key_does_not_verify(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(signed, key="other") == 1
    assert "SHA256:" in capsys.readouterr().out
    assert main(["sign", str(signed / "run"), "--key", str(signed / "other.pem")]) == 0
    assert verified(signed, key="other") == 0
    assert verified(signed) == 1


def test_a_statement_that_names_no_files_is_not_signed(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As those of 0.4: whoever changed the samples would not be found."""
    statement = replace(PrivacyStatement.read(signed / "run" / "privacy.json"), files={})
    (signed / "run" / "privacy.json").write_text(statement.to_json())
    assert main(["sign", str(signed / "run"), "--key", str(signed / "owner.pem")]) == 2
    assert "names no files" in capsys.readouterr().err


def test_what_is_no_key_and_no_release_is_refused(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (signed / "text").write_text("no key")
    pem, format_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    curve = generate_private_key(SECP256R1()).private_bytes(pem, format_, serialization.NoEncryption())
    (signed / "curve").write_bytes(curve)
    run, key = str(signed / "run"), str(signed / "owner.pem")
    before = {path: path.read_bytes() for path in signed.rglob("*") if path.is_file()}
    for arguments, named in (
        (["sign", run], "key"),
        (["sign", "--key", key], "run"),
        (["sign", run, "--key", key, "--new_key", str(signed / "new")], "new_key"),
        (["sign", "--new_key", key], "new_key"),
        (["sign", run, "--key", f"{key}.pub"], "key"),
        (["sign", run, "--key", str(signed / "text")], "key"),
        (["sign", run, "--key", str(signed / "curve")], "Ed25519"),
        (["sign", run, "--key", str(signed / "nothing")], "nothing"),
        (["sign", str(signed), "--key", key], "finished run"),
        (["verify", run, "--key", key], "public key"),
    ):
        assert main(arguments) == 2
        out, errors = capsys.readouterr()
        assert (out, errors.count("\n")) == ("", 1)
        assert named in errors
    assert {path: path.read_bytes() for path in signed.rglob("*") if path.is_file()} == before
