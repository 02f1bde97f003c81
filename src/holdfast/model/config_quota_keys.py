"""Keys of the windows by which quotas are measured. Values only; security/quotas.py goes by them."""

from typing import Final

from holdfast.model.config_key import ConfigKey, ConfigType, make_key

QUOTA_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key(
        "quota.window.num",
        ConfigType.INT,
        11,
        "The window of a client's quota in samples. All but the newest are what may be used at once after a pause.",
        low=1,
    ),
    make_key(
        "quota.window.size.seconds",
        ConfigType.INT,
        1,
        "How long a sample of a client's quota is; request_percentage makes nobody wait longer than that at a time.",
        low=1,
    ),
    make_key(
        "controller.quota.window.num",
        ConfigType.INT,
        11,
        "The samples of what controller_mutation_rate allows at once after a pause.",
        low=1,
    ),
    make_key(
        "controller.quota.window.size.seconds",
        ConfigType.INT,
        1,
        "How long a sample of controller_mutation_rate is.",
        low=1,
    ),
)
