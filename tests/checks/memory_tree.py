"""A tree as ZooKeeper keeps it, in memory: the rules of create, set and delete, and all of a multi or nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.metadata import znode_tree
from holdfast.metadata.znode_tree import TreeNode
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite
from holdfast.metadata.znodes import base_nodes


class MemoryTree:
    """``nodes`` by path, without the root. A write that ZooKeeper would refuse is an AssertionError."""

    def __init__(self, nodes: Mapping[str, TreeNode] | None = None) -> None:
        self.nodes: dict[str, TreeNode] = dict(nodes or {})
        self.ephemeral: set[str] = set()
        self.zxid = 0
        self._sequences: dict[str, int] = {}

    @classmethod
    def with_base(cls) -> MemoryTree:
        """As a store leaves it that has started and committed nothing."""
        tree = cls()
        for node in base_nodes():
            tree.write([node])
        return tree

    def copy(self) -> MemoryTree:
        """Another one that says the same."""
        other = MemoryTree(self.nodes)
        other.ephemeral, other.zxid, other._sequences = set(self.ephemeral), self.zxid, dict(self._sequences)
        return other

    def children(self, path: str) -> list[str]:
        """Names below a node, sorted."""
        start = len(path) + 1
        return sorted(p[start:] for p in self.nodes if p.startswith(path + "/") and "/" not in p[start:])

    def write(self, writes: Iterable[NodeWrite]) -> None:
        """One multi."""
        saved = dict(self.nodes), set(self.ephemeral)
        self.zxid += 1
        try:
            for write in writes:
                self._write(write)
        except AssertionError:
            self.nodes, self.ephemeral = saved
            raise

    def _write(self, write: NodeWrite) -> None:
        path = write.path
        if isinstance(write, CreateNode):
            parent = path.rpartition("/")[0]
            assert not parent or parent in self.nodes, f"NoNode: {parent} above {path}"
            if write.sequence:
                number = self._sequences.get(parent, 0)
                self._sequences[parent] = number + 1
                path = f"{path}{number:010d}"
            assert path not in self.nodes, f"NodeExists: {path}"
            self.nodes[path] = TreeNode(data=write.data, czxid=self.zxid)
            if write.ephemeral:
                self.ephemeral.add(path)
        elif isinstance(write, DeleteNode):
            assert path in self.nodes, f"NoNode: {path}"
            assert not self.children(path), f"NotEmpty: {path} has {self.children(path)}"
            del self.nodes[path]
            self.ephemeral.discard(path)
        else:
            assert path in self.nodes, f"NoNode: {path}"
            node = self.nodes[path]
            assert write.version in (None, node.version), f"BadVersion: {path} has {node.version}: {write.version}"
            self.nodes[path] = replace(node, data=write.data, version=node.version + 1)

    def asked(self) -> dict[str, TreeNode]:
        """What a new controller gets of it: nothing but what it asks for."""
        found = self._get(znode_tree.first_paths({parent: self.children(parent) for parent in znode_tree.LISTED}))
        for parent in znode_tree.user_lists(list(found)):
            found |= self._get([parent, *(f"{parent}/{name}" for name in self.children(parent))])
        return found | self._get(znode_tree.second_paths(found, znode_tree.topics_of(found)))

    def _get(self, paths: Sequence[str]) -> dict[str, TreeNode]:
        return {path: self.nodes[path] for path in paths if path in self.nodes}
