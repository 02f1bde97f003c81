"""``holdfast metadata format``: a store with an id that was chosen, and what it does not overwrite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main

ID, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "aaaaaaaaaaaaaaaaaaaaaA"


def metadata(*args: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["metadata", *args], prog_name="holdfast")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr.splitlines()[-1] if done.stderr else ""


def test_the_cluster_has_the_id_that_was_given_and_is_not_overwritten(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "new"))
    code, out, _ = metadata("format", *place, "--cluster-id", ID)
    copies = f"{tmp_path}/new/metadata, {tmp_path}/new/metadata-2"
    assert (code, out) == (0, f"Formatted the embedded store {copies} for cluster {ID}.\n")
    assert all((tmp_path / "new" / name / "cluster.id").read_text() == f"{ID}\n" for name in ("metadata", "metadata-2"))
    code, out, err = metadata("format", *place)
    assert (code, out) == (1, "")
    assert (
        err == f"holdfast metadata: the embedded store {copies} holds metadata of cluster {ID}: expected an empty one"
    )


def test_directories_of_another_cluster_and_with_replicas_are_refused(tmp_path: Path) -> None:
    logs, properties = tmp_path / "logs", tmp_path / "broker.properties"
    logs.mkdir()
    (logs / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={OTHER}\n")
    properties.write_text(f"node.id=1\nlog.dirs={logs}\nmetadata.log.dirs={tmp_path}/meta\n")
    place = ("--config", str(properties))
    assert metadata("format", *place, "--cluster-id", ID) == (
        1, "", f"holdfast metadata: {logs} is of cluster {OTHER}: expected one of cluster {ID}, or an empty one"
    )  # fmt: skip
    (logs / "t-0").mkdir()
    assert metadata("format", *place)[2].startswith(f"holdfast metadata: {logs} has replicas (t-0): expected ")
    assert not (tmp_path / "meta").exists() or not (tmp_path / "meta" / "cluster.id").exists()
    (logs / "t-0").rmdir()
    code, out, _ = metadata("format", *place, "--json")  # the id that is there
    assert (code, json.loads(out)["cluster_id"]) == (0, OTHER)


@pytest.mark.parametrize("given", ["x", ID + "=", ID[:-1] + "!", "a" * 23, ""])
def test_what_is_no_id_is_refused_by_value(given: str, tmp_path: Path) -> None:
    code, out, err = metadata("format", "--data-dir", str(tmp_path), "--cluster-id", given)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"holdfast metadata: --cluster-id {given!r}: expected 22 characters of base64 for URLs, like "
    )
    assert list(tmp_path.iterdir()) == []
