"""The configuration of koord-descheduler: ``descheduler/v1alpha2``, DeschedulerConfiguration."""

from koordinator.descheduler.configuration.document import DeschedulerConfiguration as DeschedulerConfiguration
from koordinator.descheduler.configuration.loading import (
    Configuration as Configuration,
)
from koordinator.descheduler.configuration.loading import (
    ProfileConfiguration as ProfileConfiguration,
)
from koordinator.descheduler.configuration.loading import (
    default_configuration as default_configuration,
)
from koordinator.descheduler.configuration.loading import (
    load_configuration as load_configuration,
)
from koordinator.descheduler.configuration.loading import (
    write_configuration as write_configuration,
)
