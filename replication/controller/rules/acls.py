"""CreateAcls and DeleteAcls (AclControlManager, KIP-801)."""

from collections.abc import Callable
from itertools import chain

from replication.controller.rules.decisions import Decision
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MAX_RECORDS, TOO_LARGE
from replication.metadata.rules.security_image import acl_record
from replication.security.rules.acls import Acl, AclFilter, fault_of, matches_of_all
from replication.wire.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from replication.wire.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from replication.wire.describe_acls import AclBindingFilter
from replication.wire.metadata_records import MetadataRecord, RemoveAccessControlEntryRecord


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], bytes]
) -> Decision[CreateAclsResponse]:
    """Create the ACLs that do not exist yet; those that exist are answered as created too."""
    known = set(image.security.acls.values())
    records: list[MetadataRecord] = []
    results: list[AclCreationResult] = []
    for creation in request.creations:
        acl = _acl_of(creation)
        if (fault := fault_of(acl)) is not None:
            error = ErrorCode.INVALID_REQUEST
            results.append(AclCreationResult(error_code=error, error_message=fault))
            continue
        results.append(AclCreationResult())
        if acl not in known:
            known.add(acl)
            records.append(acl_record(new_id(), acl))
    return Decision(CreateAclsResponse(results=results), tuple(records))


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Delete the ACLs that a filter matches; the answer lists the matches of each filter.

    All filters together may have as many matches as one request may add records. Kafka counts an
    ACL once, however many filters match it, and its answer is then out of all proportion to the
    request.
    """
    acls = image.security.acls
    found = matches_of_all(acls, [filter_of(each) for each in request.filters], most=MAX_RECORDS)
    if found is None:
        error = ErrorCode.POLICY_VIOLATION
        refused = DeleteAclsFilterResult(error_code=error, error_message=TOO_LARGE)
        return Decision(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
    results = [
        DeleteAclsFilterResult(matching_acls=[_matching(acls[key]) for key in keys])
        for keys in found
    ]
    gone = dict.fromkeys(chain.from_iterable(found))
    records = tuple(RemoveAccessControlEntryRecord(id_=key) for key in gone)
    return Decision(DeleteAclsResponse(filter_results=results), records)


def filter_of(asked: AclBindingFilter) -> AclFilter:
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _acl_of(asked: AclCreation) -> Acl:
    return Acl(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        pattern_type=asked.resource_pattern_type,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
