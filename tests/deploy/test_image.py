"""The image of deploy/ runs what the chart renders; the unit of systemd runs the same."""

from __future__ import annotations

import json
import re

from gateway.config import Limits
from tests.support.helm import helm
from tests.support.processes import ROOT

TO_SPARE = 5
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_runs_what_the_chart_does_as_the_user_that_it_expects() -> None:
    said = dict(line.split(" ", 1) for line in DOCKERFILE.splitlines() if re.match("ENTRYPOINT|CMD|USER", line))
    assert json.loads(said["ENTRYPOINT"]) == ["interlingua"]
    command = json.loads(said["CMD"])
    user, _, group = said["USER"].partition(":")
    release = helm().render()
    assert release.gateway()["args"][: len(command)] == command
    for context in (release.pod()["securityContext"], release.gateway()["securityContext"]):
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert release.pod()["securityContext"]["fsGroup"] == int(group)


def test_the_service_of_a_machine_without_containers_runs_it_too() -> None:
    unit = (ROOT / "deploy" / "interlingua.service").read_text(encoding="utf-8")
    assert re.search(r"^ExecStart=\S+/interlingua serve /etc/interlingua/routes.yaml$", unit, re.MULTILINE)
    (grace,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(grace) >= Limits().shutdown + TO_SPARE
