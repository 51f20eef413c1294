"""The feature gates of koord-scheduler, with the original's stages and defaults: those that work here, and why each
other one that the original accepts has no effect.

Kubernetes has one list of gates for all of its programs, so that most of them are not about scheduling at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage
from koordinator.model.gang_declaration import GENERIC_WORKLOAD
from koordinator.model.transformers import POD_GATES

CROSS_SCHEDULER_NOMINATION: Final = "CrossSchedulerNomination"
MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
IGNORE_TERMINATING: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
IGNORE_OVERDUE: Final = "ElasticQuotaIgnoreTerminatingPod"
IGNORE_OVERHEAD: Final = "ElasticQuotaIgnorePodOverhead"
RESIZE_POD: Final = "ResizePod"
DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"
OMIT_NODE_LABELS: Final = "OmitNodeLabelsForReservation"
OF_THE_VIEW: Final[Mapping[str, str]] = {
    MULTI_QUOTA_TREE: "quotas with the same tree id form a tree of their own, with the total that its root states",
    DISABLE_DEFAULT_QUOTA: "pods that name no existing quota count against none",
    GUARANTEE_USAGE: "no quota lends, and none gets less than it uses",
    IGNORE_TERMINATING: "a pod stops counting as soon as it is terminating",
    IGNORE_OVERDUE: "a terminating pod stops counting when its deletionTimestamp is older than its grace period",
    IGNORE_OVERHEAD: "the overhead of pods does not count",
    RESIZE_POD: "a Reservation holds the devices that it was allocated, not those that its template requests",
    DEVICE_PLUGIN_ADAPTION: "pods and nodes are annotated for the device plugins of some vendors",
    OMIT_NODE_LABELS: "the reservation affinity of a pod is compared with the labels of Reservations alone, not with "
    "those of their nodes",
    GENERIC_WORKLOAD: "Workloads of scheduling.k8s.io declare gangs, too",
    **POD_GATES,
}
"""Those that plugins and informers read from the view, and what they do; all are off unless they are switched on."""
WORKING: Final[Mapping[str, str]] = {
    CROSS_SCHEDULER_NOMINATION: "pods that other schedulers have nominated to nodes count there",
    **OF_THE_VIEW,
}
"""All that work."""


@dataclass(frozen=True, slots=True)
class _Gates:
    """Names, separated by blanks, of gates that have no effect for the same reason: by stage, and by default where it
    is not the stage's own."""

    why: str
    alpha: str = ""
    alpha_on: str = ""
    beta: str = ""
    beta_off: str = ""
    stable: str = ""
    deprecated: str = ""
    deprecated_on: str = ""

    def features(self) -> Iterator[tuple[str, Feature]]:
        for names, stage, default in (
            (self.alpha, Stage.ALPHA, False),
            (self.alpha_on, Stage.ALPHA, True),
            (self.beta, Stage.BETA, True),
            (self.beta_off, Stage.BETA, False),
            (self.stable, Stage.GA, True),
            (self.deprecated, Stage.DEPRECATED, False),
            (self.deprecated_on, Stage.DEPRECATED, True),
        ):
            yield from ((name, Feature(default, stage, without_effect=self.why)) for name in names.split())


_OF_KOORDINATOR: Final = (
    _Gates(
        "owners keep the annotation reservation-allocated of a Reservation that is gone; it counts for nothing then",
        alpha="CleanExpiredReservationAllocated",
    ),
    _Gates(
        "CSIStorageCapacities are watched in version v1, and only where the API server has them",
        alpha="CompatibleCSIStorageCapacity DisableCSIStorageCapacityInformer",
    ),
    _Gates(
        "PodDisruptionBudgets are watched in version v1, and only where the API server has them",
        alpha="CompatiblePodDisruptionBudget DisablePodDisruptionBudgetInformer",
    ),
    _Gates(
        "objects of dynamic resource allocation are never watched", alpha="DisableDynamicResourceAllocationInformer"
    ),
    _Gates(
        "the members of a gang with a plan are always placed right after each other", alpha="EnableInlineBatchSchedule"
    ),
    _Gates("only the nodes of Reservations that a pod owns are ever adjusted for it", alpha="LazyReservationRestore"),
    _Gates(
        "there is no second pass: nominated pods count where a pod is about to go", alpha="SkipFilterWithNominatedPods"
    ),
    _Gates(
        "it saves the original one of two equal comparisons, and changes no decision", alpha="SkipReservationFitsNode"
    ),
    _Gates("only the webhooks of koord-manager read it", alpha="SupportParentQuotaSubmitPod"),
    _Gates("the sync barrier is not built yet", alpha="SyncBarrier"),
    _Gates(
        "the scheduler name of a pod or a Reservation is always looked at when it changes",
        alpha_on="DynamicSchedulerCheck",
    ),
    _Gates("decisions read the current state; there is no snapshot", beta="EnableBatchScheduleNodeSnapshot"),
    _Gates(
        "every member of a gang that fails is tried, and has a condition of its own",
        beta="GangPendingPodsConditionPatch",
    ),
)
_OF_OTHERS: Final = (
    _Gates(
        "only the API server reads it",
        alpha="APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage ConstrainedImpersonation "
        "MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs "
        "RelaxedServiceNameValidation StorageVersionAPI StrictIPCIDRValidation UnknownVersionInteroperabilityProxy",
        beta="APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth "
        "AuthorizePodWebsocketUpgradeCreatePermission ClearingNominatedNodeNameAfterBinding DeclarativeValidation "
        "DetectCacheInconsistency ExternalServiceAccountTokenSigner ListFromCacheSnapshot OpenAPIEnums "
        "PodTopologyLabelsAdmission PortForwardWebsockets PreventStaticPodAPIReferences RemoteRequestHeaderUID "
        "ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate StorageVersionHash "
        "StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics "
        "TokenRequestServiceAccountUIDValidation TranslateStreamCloseWebsocketRequests "
        "UnauthenticatedHTTP2DOSMitigation WatchList",
        beta_off="CRDObservedGenerationTracking ConcurrentWatchObjectDecode DeclarativeValidationTakeover "
        "MutatingAdmissionPolicy WatchCacheInitializationPostStartHook",
        stable="APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors "
        "AuthorizeWithSelectors BtreeWatchCache CRDValidationRatcheting ConsistentListFromCache "
        "CustomResourceFieldSelectors DisableAllocatorDualWrite RelaxedDNSSearchValidation "
        "RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization RetryGenerateName "
        "ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation "
        "ServiceAccountTokenPodNodeInfo StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf "
        "StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration",
        deprecated="AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests "
        "AllowOverwriteTerminationGracePeriodSeconds KMSv1 SeparateCacheWatchRPC "
        "WatchFromStorageWithoutResourceVersion",
        deprecated_on="AggregatedDiscoveryRemoveBetaType StorageNamespaceIndex",
    ),
    _Gates(
        "only the kubelet, and the API server for it, read it",
        alpha="CPUManagerPolicyAlphaOptions CSIVolumeHealth ContainerStopSignals CustomCPUCFSQuotaPeriod EventedPLEG "
        "InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace "
        "MemoryQoS PodAndContainerStatsFromCRI PodLogsQuerySplitStreams QOSReserved ReduceDefaultCrashLoopBackOffDecay "
        "ResourceHealthStatus RestartAllContainersOnContainerExits RuntimeClassInImageCriApi "
        "TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport WindowsCPUAndMemoryAffinity",
        beta="CPUManagerPolicyBetaOptions CSIServiceAccountTokenSecrets ContainerCheckpoint ContainerRestartRules "
        "DisableCPUQuotaWithExclusiveCPUs EnvFiles GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority "
        "HostnameOverride ImageVolume KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages "
        "KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet "
        "KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders PodReadyToStartContainersCondition "
        "ProcMountType ReloadKubeletServerCertificateFile RotateKubeletServerCertificate SELinuxChangePolicy "
        "SELinuxMountReadWriteOncePod TopologyManagerPolicyBetaOptions UserNamespacesSupport "
        "WindowsGracefulNodeShutdown",
        beta_off="ClusterTrustBundle ClusterTrustBundleProjection LocalStorageCapacityIsolationFSQuotaMonitoring "
        "NodeLogQuery PodCertificateRequest SELinuxMount",
        stable="CPUManagerPolicyOptions ExecProbeTimeout ImageMaximumGCAge KubeletCgroupDriverFromCRI KubeletTracing "
        "MemoryManager NodeSwap PodLifecycleSleepAction PodLifecycleSleepActionAllowZero "
        "PodObservedGenerationTracking RecursiveReadOnlyMounts SupplementalGroupsPolicy SystemdWatchdog "
        "TopologyManagerPolicyOptions",
        deprecated="ChangeContainerStatusOnKubeletRestart GitRepoVolumeDriver "
        "InPlacePodVerticalScalingAllocatedStatus KubeletRegistrationGetOnExistsOnly WindowsHostNetwork",
        deprecated_on="DisableNodeKubeProxyVersion KubeletPodResourcesListUseActivePods",
    ),
    _Gates(
        "only controllers of Kubernetes, and the API server for them, read it",
        alpha="CrossNamespaceVolumeDataSource HPAScaleToZero",
        beta="DeploymentReplicaSetTerminatingReplicas HPAConfigurableTolerance PodDeletionCost "
        "StatefulSetSemanticRevisionComparison",
        beta_off="MaxUnavailableStatefulSet StorageVersionMigrator",
        stable="HonorPVReclaimPolicy JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy "
        "LogarithmicScaleDown MultiCIDRServiceAllocator OrderedNamespaceDeletion RecoverVolumeExpansionFailure "
        "SeparateTaintEvictionController",
    ),
    _Gates(
        "only the cloud-controller-manager reads it",
        alpha="CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook",
    ),
    _Gates(
        "only kube-proxy, and what prepares Services for it, read it",
        stable="NFTablesProxyMode PreferSameTrafficDistribution ServiceTrafficDistribution TopologyAwareHints WinDSR "
        "WinOverlay",
    ),
)

_OF_CLIENTS: Final = (
    _Gates("the API is spoken in JSON", alpha="ClientsAllowCBOR ClientsPreferCBOR"),
    _Gates("lists are read page by page", beta="WatchListClient"),
    _Gates(
        "events are always handled in their order",
        beta="InOrderInformers InOrderInformersBatchProcess",
        stable="InformerResourceVersion",
    ),
    _Gates("the holder of the Lease leads, no candidates are compared", beta_off="CoordinatedLeaderElection"),
    _Gates("/flagz is not served; /debug/flags is", alpha="ComponentFlagz"),
    _Gates("/statusz is not served; /healthz and /metrics are", alpha="ComponentStatusz"),
    _Gates(
        "log lines are text in one format", alpha="LoggingAlphaOptions", beta="ContextualLogging LoggingBetaOptions"
    ),
)

_OF_SCHEDULING: Final = (
    _Gates(
        "pods with resource claims stay pending: no devices are allocated by claims",
        alpha="DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints "
        "DRAExtendedResource DRAPartitionableDevices",
        beta="DRAAdminAccess DRAPrioritizedList DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout",
        stable="DynamicResourceAllocation",
    ),
    _Gates("gangs are always scheduled where the plugin Coscheduling is listed", alpha="GangScheduling"),
    _Gates("features that nodes declare are not compared with what pods need yet", alpha="NodeDeclaredFeatures"),
    _Gates("a node has no limit for the volumes of a CSI driver that it does not report", alpha="VolumeLimitScaling"),
    _Gates("storage capacity does not count in the score", alpha="StorageCapacityScoring"),
    _Gates("tolerations with the operators Lt and Gt match no taint yet", alpha="TaintTolerationComparisonOperators"),
    _Gates("a whole pod's own requests count as its spec says", alpha="InPlacePodLevelResourcesVerticalScaling"),
    _Gates("volumes of Portworx count as migrated where the node says so", alpha="InTreePluginPortworxUnregister"),
    _Gates("a nomination is written together with the pod's condition only", beta="NominatedNodeNameForExpectation"),
    _Gates("requests are always sent beside the decisions", beta_off="SchedulerAsyncAPICalls"),
    _Gates("victims are always evicted beside the decisions", beta="SchedulerAsyncPreemption"),
    _Gates("a pod that backs off is always taken when no other one is ready", beta="SchedulerPopFromBackoffQ"),
    _Gates("pods that are alike always share what was found for one of them", beta="OpportunisticBatching"),
    _Gates(
        "it is always on here",
        beta="MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge "
        "MutableCSINodeAllocatableCount PodLevelResources",
        stable="CSIMigrationPortworx CSIStorageCapacity GenericEphemeralVolume InPlacePodVerticalScaling "
        "MatchLabelKeysInPodAffinity NodeInclusionPolicyInPodTopologySpread PodDisruptionBudget "
        "PodSchedulingReadiness SchedulerQueueingHints SidecarContainers VolumeAttributesClass",
    ),
)


def make_features() -> FeatureGates:
    """All gates that koord-scheduler accepts, at their defaults."""
    gates = FeatureGates({name: Feature(default=False) for name in WORKING})
    for group in (*_OF_KOORDINATOR, *_OF_OTHERS, *_OF_CLIENTS, *_OF_SCHEDULING):
        gates.add(dict(group.features()))
    return gates
