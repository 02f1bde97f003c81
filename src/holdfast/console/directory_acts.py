"""Acts on the list of a broker's log directories: one more, one less, while it runs.

What a broker has at its next start is in its properties file. `holdfast up` keeps that itself; any other file is its
operator's, so that both acts say what is left to do there.
"""

import posixpath
from typing import Final

from holdfast.client.admin import AdminClient
from holdfast.client.disks import change_disk, describe_disks, last_copies, room_without, same_path
from holdfast.client.views import DisksView, DiskView
from holdfast.console.acts import ActField, ActPlan, ActRefused, Form, command, needed
from holdfast.console.disk_acts import broker_field, broker_of, disk_of, path_field
from holdfast.console.snapshot import Snapshot
from holdfast.console.words import bytes_words
from holdfast.model.types import BrokerId, named
from holdfast.protocol.operating import DirAction

UNFIT: Final = (("no", "refuse it"), ("yes", "make it, or use it with what is there"))


class AddDirectory:
    """A broker uses one more directory, without a restart."""

    name, title, verb = "add-directory", "Add a directory to a broker", "Add it"
    ours = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        hint = "An absolute path on that broker's machine, where its disk is mounted."
        unfit = "If it does not exist, or holds files that are not a broker's"
        return [
            broker_field(snapshot, form, ours=True),
            ActField(name="path", label="Directory", value=form.get("path", ""), hint=hint),
            ActField(name="create", label=unfit, kind="choice", choices=UNFIT, value=form.get("create", "")),
        ]

    def path(self, form: Form) -> str:
        """As it was typed. ActRefused for a relative one."""
        path = needed(form, "path", "directory")
        if not posixpath.isabs(path):
            raise ActRefused(f"directory {path}: expected an absolute path")
        return path

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker, path, create = broker_of(snapshot, form, ours=True), self.path(form), form.get("create") == "yes"
        view = await describe_disks(client, broker)
        there = any(same_path(d.path, path) for d in view.disks)
        lines = (
            f"broker {broker} uses {path} at once, beside the {len(view.disks)} directories that it has",
            "new replicas are placed there too; those that there are stay where they are until they are moved",
            "a broker of holdfast up has it at its next start as well; for any other write it into log.dirs of its "
            "properties file",
        )
        warning = "if no disk is mounted there, it is made on the disk below"
        words = ["log-dirs", "add", "--broker", str(broker), *(["--create"] if create else [])]
        return ActPlan(
            lines=lines,
            warnings=(warning,) if create else (),
            refused=f"{path} is a log directory of broker {broker} already" if there else None,
            commands=(command(self._bootstrap, *words, names=[path]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, path = broker_of(snapshot, form, ours=True), self.path(form)
        view = await change_disk(client, broker, DirAction.ADD, path, force=form.get("create") == "yes")
        made = next((d for d in view.disks if same_path(d.path, posixpath.normpath(path))), None)
        return [f"broker {broker}: {path} is added" + (f", it is {made.state}" if made is not None else "")]


class RemoveDirectory:
    """A broker has one directory less: one that holds nothing, or one that is offline."""

    name, title, verb = "remove-directory", "Remove a directory from a broker", "Remove it"
    ours = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        return [broker_field(snapshot, form, ours=True), path_field(snapshot, form, "path", "Directory")]

    async def _at_stake(
        self, client: AdminClient, broker: BrokerId, view: DisksView, disk: DiskView
    ) -> tuple[str, ...]:
        """What is lost, or has no room: why the broker has to be forced."""
        topics = sorted({r.tp.topic for r in disk.replicas})
        last = last_copies(broker, disk, await client.metadata(topics)) if topics else []
        need, room = room_without(view, disk.path)
        return (
            *((f"the last copy: {named(last)} is lost for good",) if last else ()),
            *((f"too little room: {bytes_words(room)} for what needs {bytes_words(need)}",) if need > room else ()),
        )

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker = broker_of(snapshot, form, ours=True)
        view = await describe_disks(client, broker)
        disk = disk_of(view, broker, needed(form, "path", "directory"))
        held = sum(not r.future for r in disk.replicas)
        need, room = room_without(view, disk.path)
        warnings = await self._at_stake(client, broker, view, disk)
        lines = (
            f"{disk.path} of broker {broker} is {disk.state} and "
            + (f"held {held} replicas: they are made anew on its other directories" if held else "holds nothing"),
            f"{bytes_words(need)} needed there, {bytes_words(room)} usable",
            "files in it are left as they are",
            "a broker of holdfast up does not have it at its next start; for any other take it out of log.dirs of its "
            "properties file",
        )
        words = ["log-dirs", "remove", "--broker", str(broker), *(["--force"] if warnings else [])]
        return ActPlan(
            lines=lines,
            warnings=warnings,
            confirm=disk.path if held else None,
            refused=refusal(broker, view, disk),
            commands=(command(self._bootstrap, *words, names=[disk.path]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, path = broker_of(snapshot, form, ours=True), needed(form, "path", "directory")
        view = await describe_disks(client, broker)
        disk = disk_of(view, broker, path)
        at_stake = await self._at_stake(client, broker, view, disk)
        if at_stake and form.get("confirm") != disk.path:
            raise ActRefused(f"{disk.path}: {'; '.join(at_stake)} by now: look at the plan again")
        after = await change_disk(client, broker, DirAction.REMOVE, disk.path, force=bool(at_stake))
        return [f"broker {broker}: {disk.path} is removed; it has {', '.join(d.path for d in after.disks)}"]


def refusal(broker: BrokerId, view: DisksView, disk: DiskView) -> str | None:
    """Why a broker would not do it. Pure."""
    held = sum(not r.future for r in disk.replicas)
    if held and disk.state != "offline":
        return f"{disk.path} holds {held} replicas: move them first, or take it out of use and lose these copies"
    if all(d.state == "offline" for d in view.disks if d is not disk):
        return f"{disk.path} is the last log directory that broker {broker} can use"
    return None
