"""Random images on their way between the stores and back: equal, and a dump of each reads as what was written."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.metadata import host_records
from holdfast.metadata.broker_ids import HostEntry
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import difference_lines, differences, listing, parse, to_json, to_text
from holdfast.metadata.records import ControllerClaimRecord
from tests.checks.two_stores import TO_EMBEDDED, TO_ZOOKEEPER, TwoStores
from tests.contracts.ensembles import ModelEnsemble
from tests.property.test_znodes import images

CLUSTER_ID = "A" * 22


def claimed(image: ClusterImage) -> ClusterImage:
    """Somebody is the controller: no store holds anything before that, and no directory can say where a log ends in
    which nothing is."""
    claim = ControllerClaimRecord(controller_epoch=image.controller_epoch + 1, broker_id=1, host="h", port=9)
    return replace(image, cluster_id=CLUSTER_ID).apply([claim], image.next_offset)[0]


@st.composite
def entries(draw: st.DrawFn, broker_id: int) -> HostEntry:
    """An id that is awaited has who took it, and perhaps where it will listen."""
    if draw(st.booleans()):
        return HostEntry(broker_id=broker_id)
    address = draw(st.none() | st.just("10.0.0.1:9092"))
    return HostEntry(broker_id=broker_id, claimant=draw(st.uuids(version=4)), address=address)


@st.composite
def with_hosts(draw: st.DrawFn) -> ClusterImage:
    """A claimed image that also knows which host has which broker id."""
    image = claimed(draw(images()))
    names = draw(st.lists(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True), unique=True, max_size=4))
    records = list(host_records.numbered(draw(st.integers(0, 5))))
    for broker_id, name in enumerate(names, start=1001):
        records += host_records.put(image, name, draw(entries(broker_id)))
    return image.apply(records, image.next_offset)[0] if records else image


@settings(max_examples=15, deadline=None)
@given(image=with_hosts())
def test_an_image_comes_back_from_zookeeper_as_it_went(image: ClusterImage) -> None:
    ensemble = ModelEnsemble()
    with tempfile.TemporaryDirectory() as folder:
        stores = TwoStores(Path(folder), lambda: ensemble.client(start=False))
        stores.put(TO_EMBEDDED, image)
        assert stores.migrate(TO_ZOOKEEPER, migration_id="there")[1] == image
        assert stores.load(TO_ZOOKEEPER) == image
        assert stores.migrate(TO_EMBEDDED, migration_id="back")[1] == image
        assert stores.load(TO_EMBEDDED) == image
    ensemble.close()


@settings(max_examples=100, deadline=None)
@given(image=images())
def test_a_dump_reads_as_what_was_written(image: ClusterImage) -> None:
    made = listing(image)
    assert parse("file", to_text(made)) == made
    assert parse("file", to_json(made)) == made


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_listings_are_equal_where_images_are_and_only_there(data: st.DataObject) -> None:
    one, other = data.draw(images()), data.draw(images())
    # The secret is made with the first user. Without one keys are not told, as anybody could try passwords by them.
    assume(all(image.users.secret or not image.users.credentials for image in (one, other)))
    found = differences(listing(one), listing(other))
    assert (not found) == (one == other)
    assert all(list(difference_lines(each)) for each in found)
    assert differences(listing(one), listing(one)) == []
