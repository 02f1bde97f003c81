"""``holdfast features``: what kafka-features.sh does, with its lines."""

import json
from collections.abc import Iterable, Mapping, Sequence

import click

from holdfast.cli.connecting import bootstrap_option, json_option
from holdfast.cli.kafka_errors import Declined, DeclinedUse, KafkaErrorsGroup, in_kafkas_words, run
from holdfast.cli.kafka_words import said
from holdfast.client.admin import AdminClient
from holdfast.client.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureView,
    describe_features,
    update_features,
)
from holdfast.model.errors import HoldfastError, InvalidUpdateVersionError

_LEVELS = click.option(
    "--feature", "wanted", multiple=True, metavar="NAME=LEVEL", help="A feature and its level; repeatable."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")
_UNSAFE = click.option("--unsafe", is_flag=True, help="Also where something may be lost by it.")


@click.group(cls=KafkaErrorsGroup)
def features() -> None:
    """Describe, upgrade, downgrade, disable feature levels.

    transaction.version 2 has clients use transactions whose epoch grows with each of them (KIP-890).
    """


@features.command()
@bootstrap_option
@json_option()
def describe(bootstrap: str, as_json: bool) -> None:
    """Which levels the brokers know, and which are in force."""
    found, epoch = run(bootstrap, describe_features)
    if as_json:
        click.echo(features_document(found, epoch))
        return
    for line in describe_lines(found, epoch):
        click.echo(line)


@features.command()
@bootstrap_option
@_LEVELS
@_DRY_RUN
def upgrade(bootstrap: str, wanted: tuple[str, ...], dry_run: bool) -> None:
    """Put higher levels in force."""
    _update(bootstrap, "upgrade", parse_levels(wanted), UPGRADE, dry_run=dry_run)


@features.command()
@bootstrap_option
@_LEVELS
@_UNSAFE
@_DRY_RUN
def downgrade(bootstrap: str, wanted: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Put lower levels in force."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(bootstrap, "downgrade", parse_levels(wanted), kind, dry_run=dry_run)


@features.command()
@bootstrap_option
@click.option("--feature", "wanted", multiple=True, metavar="NAME", help="A feature; repeatable.")
@_UNSAFE
@_DRY_RUN
def disable(bootstrap: str, wanted: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Put features out of force."""
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(bootstrap, "disable", dict.fromkeys(wanted, 0), kind, dry_run=dry_run)


def _update(bootstrap: str, what: str, levels: Mapping[str, int], kind: int, *, dry_run: bool) -> None:
    if not levels:
        raise DeclinedUse(
            f"which features to {what}? expected --feature", f"You must specify at least one feature to {what}"
        )

    async def work(client: AdminClient) -> HoldfastError | None:
        try:
            await update_features(client, levels, kind, validate_only=dry_run)
        except InvalidUpdateVersionError as e:
            return e
        return None

    error = run(bootstrap, work)
    lines = outcome_lines(what, levels, error, dry_run=dry_run)
    if error is None or in_kafkas_words():
        for line in lines:
            click.echo(line)
    if error is not None:
        kafkas = f"{len(levels)} out of {len(levels)} operation(s) failed."
        raise Declined.several([Declined(line) for line in lines], kafkas)


def parse_levels(wanted: Sequence[str]) -> dict[str, int]:
    """Of NAME=LEVEL each. DeclinedUse where one is not that, or a name comes twice."""
    found: dict[str, int] = {}
    for text in wanted:
        name, equals, level = text.rpartition("=")
        name = name.strip()
        if not (equals and name):
            raise DeclinedUse(
                f"--feature {text}: expected NAME=LEVEL",
                f"Can't parse feature=level string {text}: equals sign not found.",
            )
        try:
            number = int(level)
        except ValueError:
            number = 1 << 15
        if not -(1 << 15) <= number < 1 << 15:
            raise DeclinedUse(
                f"--feature {text}: level {level.strip()!r}: expected a whole number up to 32767",
                f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.",
            )
        if name in found:
            raise DeclinedUse(
                f"--feature {text}: {name} comes twice: expected each feature once",
                f"Feature {name} was specified more than once.",
            )
        found[name] = number
    return found


def describe_lines(features: Iterable[FeatureView], epoch: int | None) -> list[str]:
    """Kafka's lines. Pure."""
    return [
        f"Feature: {f.name:<42}SupportedMinVersion: {f.supported_min:<17}SupportedMaxVersion: {f.supported_max:<17}"
        f"FinalizedVersionLevel: {f.level:<17}Epoch: {'-' if epoch is None else epoch}"
        for f in features
    ]


def features_document(features: Iterable[FeatureView], epoch: int | None) -> str:
    """The same as JSON; a level of 0 is not in force. Pure."""
    found = [
        {"feature": f.name, "supported_min": f.supported_min, "supported_max": f.supported_max, "level": f.level}
        for f in features
    ]
    return json.dumps({"version": 1, "epoch": epoch, "features": found})


def outcome_lines(what: str, levels: Mapping[str, int], error: HoldfastError | None, *, dry_run: bool) -> list[str]:
    """Kafka's lines for an update, of which all of it was done or nothing. Pure."""
    lines = []
    for name, level in sorted(levels.items()):
        if error is not None:
            aim = f"disable {name}" if what == "disable" else f"{what} {name} to {level}"
            lines.append(f"{'Can' if dry_run else 'Could'} not {aim}. {said(error)}")
        else:
            done = "disabled." if what == "disable" else f"{what}d to {level}."
            lines.append(f"{name} {'can be' if dry_run else 'was'} {done}")
    return lines
