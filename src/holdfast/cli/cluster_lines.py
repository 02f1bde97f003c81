"""The cluster and its health as lines that fit one screen, and as JSON. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from holdfast.cli.columns import table_lines
from holdfast.client.features import FeatureView
from holdfast.client.health import Found, Health, Survey
from holdfast.client.survey import BrokerAbout, Members
from holdfast.model.types import named

PARTITIONS_SHOWN = 5
MOST_SHOWN = 15
"""Problems, and notices, that a screen has room for; the JSON has all."""
UNKNOWN = "-"


def cluster_lines(members: Members, about: Sequence[BrokerAbout], width: int | None) -> list[str]:
    """``holdfast cluster describe``."""
    controller = "none" if members.controller_id is None else f"broker {members.controller_id}"
    in_force, epoch = _in_force(about)
    features = ", ".join(f"{f.name}={f.level}" for f in in_force) or UNKNOWN
    lines = [
        f"cluster id  {members.cluster_id}",
        f"controller  {controller}",
        f"features    {features}{'' if epoch is None else f' (epoch {epoch})'}",
        f"brokers     {len(about)}",
    ]
    rows = [
        (
            str(b.node.broker_id),
            b.node.address,
            b.node.rack or UNKNOWN,
            b.protocol or UNKNOWN,
            f"does not answer: {b.error}" if b.error else _supported(b.features),
        )
        for b in about
    ]
    return [
        *lines,
        "",
        *table_lines(("BROKER", "ADDRESS", "RACK", "PROTOCOL", "FEATURES"), rows, width=width, folded=4, right=(0,)),
    ]


def _in_force(about: Iterable[BrokerAbout]) -> tuple[list[FeatureView], int | None]:
    """As the broker has it that has heard of the newest change."""
    told = [b for b in about if b.features_epoch is not None]
    if not told:
        return [], None
    newest = max(told, key=lambda b: b.features_epoch or 0)
    return [f for f in newest.features if f.level], newest.features_epoch


def _supported(features: Iterable[FeatureView]) -> str:
    return ", ".join(f"{f.name} {f.supported_min}-{f.supported_max}" for f in features) or UNKNOWN


def cluster_json(members: Members, about: Sequence[BrokerAbout]) -> str:
    """The same as one document."""
    in_force, epoch = _in_force(about)
    return _dumped(
        {
            "version": 1,
            "cluster_id": members.cluster_id,
            "controller": members.controller_id,
            "features": {"epoch": epoch, "levels": {f.name: f.level for f in in_force}},
            "brokers": [
                {
                    "id": b.node.broker_id,
                    "host": b.node.host,
                    "port": b.node.port,
                    "rack": b.node.rack,
                    "protocol": b.protocol,
                    "features": {f.name: {"min": f.supported_min, "max": f.supported_max} for f in b.features},
                    "error": b.error,
                }
                for b in about
            ],
        }
    )


def health_lines(survey: Survey, health: Health, width: int | None) -> list[str]:
    """``holdfast cluster health``: the judgement, what there is, what is wrong."""
    cluster = f"cluster {survey.view.cluster_id}: {'healthy' if health.is_healthy else 'NOT healthy'}"
    return [
        cluster,
        *_counts(survey),
        *_findings("problems", health.problems, width),
        *_findings("notices", health.notices, width),
    ]


def _counts(survey: Survey) -> list[str]:
    controller = survey.view.controller_id
    topics = survey.view.topics.values()
    states = Counter(d.state for told in survey.disks.values() if not isinstance(told, str) for d in told)
    disks = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none told"
    return [
        f"brokers: {len(survey.alive)} alive, controller {'none' if controller is None else controller}",
        f"topics: {len(topics)}, partitions: {sum(len(t.partitions) for t in topics)}",
        f"log directories: {disks}",
    ]


def _findings(title: str, found: Sequence[Found], width: int | None) -> list[str]:
    if not found:
        return []
    lines = [f"{title}:"]
    for each in found[:MOST_SHOWN]:
        text = each.text
        if each.partitions and each.broker is None:  # of a broker or a directory there are too many to name
            text += f": {named(each.partitions, PARTITIONS_SHOWN)}"
        if width is None:
            lines.append(f"  {text}")
        else:
            lines += wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    if len(found) > MOST_SHOWN:
        lines.append(f"  and {len(found) - MOST_SHOWN} more: --json has all")
    return lines


def health_json(survey: Survey, health: Health) -> str:
    """All of it as one document; what could not be asked is among the problems."""
    view = survey.view
    return _dumped(
        {
            "version": 1,
            "healthy": health.is_healthy,
            "cluster_id": view.cluster_id,
            "controller": view.controller_id,
            "brokers": sorted(survey.alive),
            "topics": len(view.topics),
            "partitions": sum(len(t.partitions) for t in view.topics.values()),
            "problems": [_found(f) for f in health.problems],
            "notices": [_found(f) for f in health.notices],
        }
    )


def _found(found: Found) -> dict[str, Any]:
    given = {
        "broker": found.broker,
        "log_dir": found.log_dir,
        "state": found.state,
        "reason": found.reason,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in found.partitions] or None,
    }
    return {"kind": found.kind.value, "text": found.text, **{k: v for k, v in given.items() if v is not None}}


def _dumped(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)
