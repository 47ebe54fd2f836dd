"""Watches the pods of its nodes and carries out the orders that they bear."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from agent.logs import LogUploader
from agent.orders import DONE, ORDER, WORKLOAD, Order, borne_by, held_for, order_of
from agent.saving import Saver

log = logging.getLogger(__name__)
WATCH_SECONDS = 240
RETRY_SECONDS = 1.0
AT_ONCE = 4


@dataclass(frozen=True)
class ServedNodes:
    """Which nodes an agent serves: one by name, or all with a label `KEY=VALUE`."""

    name: str = ""
    label: str = ""

    @property
    def field_selector(self) -> str:
        return f"spec.nodeName={self.name}" if self.name else ""

    def serve(self, api: client.CoreV1Api, node: str) -> bool:
        if not self.label:
            return node == self.name
        key, _, value = self.label.partition("=")
        return (api.read_node(node).metadata.labels or {}).get(key) == value


class OrderController:
    """Carries out one order of a pod at a time, the newest that it bears.

    One that was replaced before its turn is nobody's wish any more. One that comes back after
    another was answered is carried out again: its answer has been overwritten.
    """

    def __init__(
        self,
        api: client.CoreV1Api,
        nodes: ServedNodes,
        saver: Saver,
        logs: LogUploader | None = None,
    ) -> None:
        self.api = api
        self.nodes = nodes
        self.saver = saver
        self.logs = logs
        self.wanted: dict[str, Order | None] = {}  # by uid of each pod that is being saved
        self.said: dict[str, str] = {}  # by uid, which order was answered last
        self.lock = threading.Lock()
        self.met: set[str] = set()  # by uid
        self.pool = ThreadPoolExecutor(AT_ONCE, "save")

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. A lost watch is begun again with all pods."""
        while not stop.is_set():
            try:
                self._watch(stop)
            except (ApiException, urllib3.exceptions.HTTPError, OSError, KeyError) as error:
                # KeyError: the client looks for what it has not made of an event of type ERROR.
                log.warning("the watch broke: %r", error)
                stop.wait(RETRY_SECONDS)

    def _watch(self, stop: threading.Event) -> None:
        stream = watch.Watch().stream(
            self.api.list_pod_for_all_namespaces,
            label_selector=WORKLOAD,
            field_selector=self.nodes.field_selector,
            timeout_seconds=WATCH_SECONDS,
            deserialize=False,  # plain documents: its objects cost far more than the JSON
        )
        for event in stream:
            if stop.is_set():
                return
            if event["type"] in {"ADDED", "MODIFIED"}:
                self.look(event["object"])
            elif event["type"] == "DELETED":
                uid = event["object"]["metadata"]["uid"]
                self.saver.holds.forget(uid)
                self.met.discard(uid)
                self.said.pop(uid, None)
                if self.logs:
                    self.logs.forget(uid)

    def look(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if self.logs:
            self.logs.follow(pod)
        if metadata["uid"] not in self.met:
            held = held_for(pod)
            if held is not None and self.nodes.serve(self.api, held.node):
                self.saver.holds.resume(held)
            self.met.add(metadata["uid"])
        if metadata.get("deletionTimestamp"):
            grace = metadata.get("deletionGracePeriodSeconds", 0)
            ended = self.saver.holds.going(metadata["uid"], grace, borne_by(pod))
            held = held_for(pod)
            if ended and held is not None:
                self.pool.submit(self._report_end, held, pod).add_done_callback(_tell)
        elif ORDER not in (metadata.get("annotations") or {}):
            self.saver.holds.recalled(metadata["uid"])
            self.said.pop(metadata["uid"], None)  # the next order may have the same name
        self.want(metadata["uid"], order_of(pod))

    def _report_end(self, order: Order, pod: dict[str, Any]) -> None:
        """Sluice need not wait until the kubelet has found out and told so."""
        answer = order.ended(pod["metadata"]["annotations"][DONE], at=int(time.time() * 1000))
        log.info("order %s: %s/%s has ended", order.name, order.namespace, order.pod)
        patch = {"metadata": {"uid": order.uid, "annotations": {DONE: answer}}}
        self.api.patch_namespaced_pod(order.pod, order.namespace, patch)

    def want(self, uid: str, order: Order | None) -> None:
        """Begin at once, or after what is under way for the same pod; None: nothing more."""
        with self.lock:
            if order is not None and self.said.get(uid) == order.name:
                return  # the event is older than the answer
            busy = uid in self.wanted
            if order is not None or busy:
                self.wanted[uid] = order
        if order is not None and not busy:
            self._begin(order)

    def _begin(self, order: Order) -> None:
        self.pool.submit(self._take_turn, order).add_done_callback(_tell)

    def _take_turn(self, order: Order) -> None:
        """Carries it out, and sees to it that what its pod wants by then is next."""
        try:
            self._carry_out(order)
            self.said[order.uid] = order.name
        finally:
            with self.lock:
                next_one = self.wanted.pop(order.uid)
                if next_one is not None and next_one.name != order.name:
                    self.wanted[order.uid] = next_one
                    self._begin(next_one)

    def _carry_out(self, order: Order) -> None:
        if not self.nodes.serve(self.api, order.node):
            return
        log.info("order %s: %s/%s", order.name, order.namespace, order.pod)
        answer = self.saver.save(order)
        log.info("order %s: %s", order.name, answer)
        # The uid makes it fail on a later pod of the same name.
        patch = {"metadata": {"uid": order.uid, "annotations": {DONE: answer}}}
        self.api.patch_namespaced_pod(order.pod, order.namespace, patch)


def _tell(done: Any) -> None:
    if error := done.exception():
        log.error("an order failed", exc_info=error)
