"""The image that copy jobs run is read once, when the operator starts: an API server that does not answer at
that moment must not leave the operator without one for as long as it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operator_tests.kube.objects import ObjectsKube
from waltz_operator.kube.errors import KubeError, KubeForbiddenError, KubeUnavailableError
from waltz_operator.run.process import own_image

POD = {
    "metadata": {"name": "me"},
    "spec": {"containers": [{"name": "proxy", "image": "other:1"}, {"name": "operator", "image": "ours:2"}]},
}


class Answers(ObjectsKube):
    """Fails with these errors, one after the other, and then has the pod."""

    def __init__(self, *errors: KubeError) -> None:
        super().__init__()
        self.errors = list(errors)

    async def get(self, *_: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return POD


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "me")


@pytest.mark.looptime
async def test_it_is_asked_for_until_the_api_server_answers() -> None:
    busy = [KubeUnavailableError("GET pods: no answer") for _ in range(5)]
    assert await own_image(Answers(*busy), "ops", asyncio.Event()) == "ours:2"


async def test_what_is_not_permitted_is_not_asked_for_again() -> None:
    kube = Answers(KubeForbiddenError("GET pods is forbidden", status=403))
    assert await own_image(kube, "ops", asyncio.Event()) == ""
    assert kube.errors == []


@pytest.mark.looptime
async def test_an_operator_that_is_stopped_waits_no_longer() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(3.0, stop.set)
    endless = [KubeUnavailableError("GET pods: no answer") for _ in range(1000)]
    async with asyncio.timeout(10.0):
        assert await own_image(Answers(*endless), "ops", stop) == ""
