"""Reading objects over the API server's HTTP port. What is waited for is asked for twice a second, for most
of a run: a process of kubectl for each question took as much of the machine as the API server did."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from tests.e2e.shell import CommandError

TIMEOUT_SECONDS = 15.0


class Resource(NamedTuple):
    """Where objects of a kind are: `group` is the path of the group and version, `name` the plural."""

    group: str
    name: str
    namespaced: bool

    def path(self, namespace: str) -> str:
        """Of all objects of the kind in a namespace; without one, in all of them."""
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.group}{within}/{self.name}"


class Reader:
    """One cluster, with the credentials of a kubeconfig. Safe to use from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = Configuration()
        load_kube_config(config_file=str(kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
        self._host = settings.host
        self._pool = urllib3.PoolManager(
            maxsize=8,
            ca_certs=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            retries=False,
            timeout=TIMEOUT_SECONDS,
        )
        self._known: dict[str, Resource] = {}

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object, or None when it is not there. CommandError."""
        return self._get(f"{self._resource(kind).path(namespace)}/{name}")

    def list(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, by labels. CommandError."""
        found = self._get(self._resource(kind).path(namespace), labelSelector=selector) or {}
        items: list[dict[str, Any]] = found.get("items", [])
        return items

    def _resource(self, kind: str) -> Resource:
        """By plural, plural with group, singular, short name or kind, as kubectl takes them."""
        if kind not in self._known:
            self._known |= self._discover()
        if kind not in self._known:
            raise CommandError(f"the API server knows no objects of kind {kind}")
        return self._known[kind]

    def _discover(self) -> dict[str, Resource]:
        paths = {"": "/api/v1"}
        for group in self._asked("/apis")["groups"]:
            paths[group["name"]] = f"/apis/{group['preferredVersion']['groupVersion']}"
        known: dict[str, Resource] = {}
        for group_name, path in paths.items():
            for one in (self._get(path) or {"resources": []})["resources"]:
                plural = one["name"]
                if "/" in plural:
                    continue
                resource = Resource(path, plural, one["namespaced"])
                names = (plural, f"{plural}.{group_name}", one["singularName"], one["kind"].lower())
                for name in (*names, *one.get("shortNames", ())):
                    known.setdefault(name, resource)
        return known

    def _asked(self, path: str) -> dict[str, Any]:
        found = self._get(path)
        if found is None:
            raise CommandError(f"GET {path}: not found")
        return found

    def _get(self, path: str, **query: str) -> dict[str, Any] | None:
        try:
            answer = self._pool.request("GET", self._host + path, fields=query)
        except urllib3.exceptions.HTTPError as error:
            raise CommandError(f"GET {path}: {error}") from error
        if answer.status == 404:
            return None
        try:
            found: dict[str, Any] = json.loads(answer.data)
        except ValueError as error:
            raise CommandError(f"GET {path}: HTTP {answer.status}: no JSON") from error
        if answer.status != 200:
            raise CommandError(f"GET {path}: HTTP {answer.status}: {found.get('message', '')}")
        return found


@cache
def reader(kubeconfig: Path) -> Reader:
    """The one of this cluster."""
    return Reader(kubeconfig)
