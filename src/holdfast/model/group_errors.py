"""The errors of consumer groups and their coordinators, one family of model/errors.py."""

from holdfast.model.errors import HoldfastError


class GroupError(HoldfastError):
    """A consumer group refuses the request."""


class CoordinatorNotAvailableError(GroupError):
    """No broker coordinates the group now."""

    retriable = True


class NotCoordinatorError(GroupError):
    """Another broker coordinates the group."""

    retriable = True


class CoordinatorLoadInProgressError(GroupError):
    """The coordinator is still reading the group's log."""

    retriable = True


class InvalidGroupIdError(GroupError):
    """The group's name is empty or not legal."""


class IllegalGenerationError(GroupError):
    """The generation is not the group's current one."""


class UnknownMemberIdError(GroupError):
    """The group has no such member."""


class MemberIdRequiredError(GroupError):
    """The member must join again with the id it was given."""


class FencedInstanceIdError(GroupError):
    """Another member took over the static instance id."""


class RebalanceInProgressError(GroupError):
    """The group is rebalancing: join again."""


class InconsistentGroupProtocolError(GroupError):
    """The member shares no protocol with the group."""


class GroupMaxSizeReachedError(GroupError):
    """The group is full (group.max.size)."""


class GroupIdNotFoundError(GroupError):
    """No such group."""


class NonEmptyGroupError(GroupError):
    """The group has members."""


class GroupSubscribedToTopicError(GroupError):
    """The group's members subscribe to the topic."""


class OffsetMetadataTooLargeError(GroupError):
    """The metadata string of a commit is over offset.metadata.max.bytes."""
