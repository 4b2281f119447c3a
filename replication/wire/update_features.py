"""UpdateFeatures (KIP-584, KIP-778): changes the finalized levels of features."""

from replication.wire.schema import array, boolean, define, int8, int16, int32, string

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


@define(kw_only=True)
class FeatureUpdate:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=UPGRADE)


@define(kw_only=True)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdate] = array(FeatureUpdate)
    validate_only: bool = boolean("1+")


@define(kw_only=True)
class FeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@define(kw_only=True)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[FeatureResult] = array(FeatureResult, "0-1")
