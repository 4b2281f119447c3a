"""Older versions of requests, translated for the controller, which decides about the newest.

    DeleteTopics 1 to 5     topics by name alone; before 3 TOPIC_DELETION_DISABLED has no name (KIP-322)
    UpdateFeatures 0, 1     a result for each feature; 0 has no types of updates

Brokers of ours forward requests in the newest version, those of Apache Kafka in the client's.
"""

from typing import Any

from replication.errors import ErrorCode
from replication.wire.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    FeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_DELETION_DISABLED_SINCE = 3


def newest_form(request: Any, version: int) -> Any:
    """Return what `request` says, in the fields of the newest version."""
    match request:
        case DeleteTopicsRequest() if version < 6:
            states = [DeleteTopicState(name=name) for name in request.topic_names]
            return DeleteTopicsRequest(topics=states, timeout_ms=request.timeout_ms)
        case UpdateFeaturesRequest():
            for each in request.feature_updates:
                if each.allow_downgrade:
                    each.upgrade_type = SAFE_DOWNGRADE
        case _:
            pass
    return request


def fill_older_form(request: Any, response: Any, version: int) -> None:
    """Fill what only `version` of a response has, and replace what it does not know."""
    match response:
        case DeleteTopicsResponse() if version < _DELETION_DISABLED_SINCE:
            for topic in response.responses:
                if topic.error_code == ErrorCode.TOPIC_DELETION_DISABLED:
                    topic.error_code = ErrorCode.INVALID_REQUEST
        case UpdateFeaturesResponse() if response.error_code == ErrorCode.NONE:
            names = dict.fromkeys(each.feature for each in request.feature_updates)
            response.results = [FeatureResult(feature=name) for name in names]
        case _:
            pass
