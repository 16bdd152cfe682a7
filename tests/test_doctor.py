"""What `dinfer-doctor` says of this machine."""

from __future__ import annotations

import json

import pytest

from evals.sandbox import layers
from experiments import doctor


def test_it_names_versions_devices_packages_and_the_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"].startswith("2.")
    assert "cores" in found["devices"]["cpu"]
    assert set(layers()) <= set(found["sandbox"])
    assert found["sandbox"]["trial program"] == "ran"
    assert all(state.startswith(("installed", "not installed")) for state in found["optional packages"].values())


def test_a_package_that_is_not_there_is_said_so() -> None:
    assert doctor.available("no_such_package_at_all") == "not installed"
    assert doctor.available("no_such.part") == "not installed"
    assert doctor.available("json") == "installed"


def test_text_has_one_line_a_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["versions", "devices", "optional packages", "sandbox"]
