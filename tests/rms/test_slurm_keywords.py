"""Every keyword of slurm.conf(5), 20.11 to 25.11, is recognized, and what is not modeled is named."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from hpctwin.rms.site import NO_EFFECT, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site
from hpctwin.rms.slurm.site.recognition import SlurmFiles

RECORDED = Path(__file__).parent / "recorded" / "slurm-site"


def words(text: str) -> list[str]:
    return text.split()


OF_ALL = words(
    """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost
    AccountingStorageHost AccountingStorageLoc AccountingStorageParameters AccountingStoragePass
    AccountingStoragePort AccountingStorageTRES AccountingStorageType AccountingStorageUser
    AccountingStoreFlags AccountingStoreJobComment AcctGatherEnergyType AcctGatherFilesystemType
    AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherNodeFreq AcctGatherProfileType
    AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr
    BackupController BatchStartTimeout BcastExclude BcastParameters BurstBufferParameters
    BurstBufferType CertgenParameters CertgenType CertmgrParameters CertmgrType CliFilterPlugins
    CommunicationParameters CompleteWait ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef
    CpuFreqGovernors CredType CryptoType DataParserParameters DebugFlags DefCpuPerGPU DefMemPerCPU
    DefMemPerGPU DefMemPerNode DependencyParameters DisableRootJobs EioTimeout EnforcePartLimits
    Epilog EpilogMsgTime EpilogSlurmctld EpilogTimeout ExtSensorsFreq ExtSensorsType
    FairShareDampeningFactor FastSchedule FederationParameters FirstJobId GetEnvTimeout GpuFreqDef
    GresTypes GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckInterval HealthCheckNodeState
    HealthCheckProgram HttpParserType InactiveLimit InteractiveStepOptions JobAcctGatherFrequency
    JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass
    JobCompPort JobCompType JobCompUser JobContainerType JobCredentialPrivateKey
    JobCredentialPublicCertificate JobFileAppend JobRequeue JobSubmitPlugins KeepAliveTime
    KillOnBadExit KillWait LaunchParameters LaunchType Licenses LogTimeFormat MCSParameters
    MCSPlugin MailDomain MailProg MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId
    MaxMemPerCPU MaxMemPerNode MaxNodeCount MaxStepCount MaxTasksPerNode MessageTimeout
    MetricsParameters MetricsType MinJobAge MpiDefault MpiParams NamespaceType NodeFeaturesPlugins
    OverTimeLimit PlugStackConfig PluginDir PowerParameters PowerPlugin PrEpParameters PrEpPlugins
    PreemptExemptTime PreemptMode PreemptParameters PreemptType PriorityCalcPeriod
    PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters
    PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
    PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize
    PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog
    PrologEpilogTimeout PrologFlags PrologSlurmctld PrologTimeout PropagatePrioProcess
    PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit
    RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun
    ResvProlog ReturnToService RoutePlugin SallocDefaultCommand SbcastParameters SchedulerAuth
    SchedulerParameters SchedulerTimeSlice SchedulerType ScronParameters SelectType
    SelectTypeParameters SlurmSchedLogFile SlurmSchedLogLevel SlurmUser SlurmctldAddr SlurmctldDebug
    SlurmctldHost SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack
    SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug
    SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort
    SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser SrunEpilog SrunPortRange SrunProlog
    StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendRate
    SuspendTime SuspendTimeout SwitchParameters SwitchType TCPTimeout TLSParameters TLSType
    TaskEpilog TaskPlugin TaskPluginParam TaskProlog TmpFS TopologyParam TopologyPlugin TrackWCKey
    TreeWidth UnkillableStepProgram UnkillableStepTimeout UrlParserType UsePAM VSizeFactor WaitTime
    X11Parameters
    """
)
OF_NODES = words(
    """
    BcastAddr Boards CoreSpecCount CoresPerSocket CpuBind CPUs CpuSpecList Feature Features Gres
    MemSpecLimit NodeAddr NodeHostname Port Procs RealMemory Reason RestrictedCoresPerGPU Sockets
    SocketsPerBoard State ThreadsPerCore TmpDisk Topology TRESWeights Weight
    """
)
OF_PARTITIONS = words(
    """
    AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCpuPerGPU
    DefMemPerCPU DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveTopo
    ExclusiveUser GraceTime Hidden JobDefaults LLN MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU
    MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe OverTimeLimit PowerDownOnIdle
    PreemptMode Priority PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout RootOnly
    SelectTypeParameters Shared State SuspendTime SuspendTimeout Topology TRESBillingWeights
    """
)
OF_FRONT_ENDS = words("AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Port Reason State")
LINES = {
    "NodeName=n[1-4]": OF_NODES,
    "PartitionName=p": OF_PARTITIONS,
    "DownNodes=n1": ["Reason", "State"],
    "NodeSet=s": ["Feature", "Nodes"],
    "FrontendName=f": OF_FRONT_ENDS,
}
HEAD = "ClusterName=c\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
FORMS = [
    lambda first, key: f"{first} {key}=7\n",
    lambda first, key: f"{first} {key}=7 CPUAlloc\n".lower(),
    lambda first, key: f"\t{first} \\\n   {key}=7 # TotalNodes=4\n".upper(),
    lambda first, key: f'# {first}\n\n{first}  {key} = "7" \\\r\n  Extra=1\r\n',
    lambda first, key: f"\ufeff#CPUAlloc=0\n{first} \\\n{key}=7",
]
"""Ways to write a line: in any case, with comments, over several lines, as Windows does."""


def kind_of(tmp_path: Path, text: str, name: str = "x.conf") -> str:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return SlurmFiles(tmp_path, [path]).take(path, path.read_bytes())


def imported(tmp_path: Path, text: str) -> Imported:
    (tmp_path / "slurm.conf").write_text(text)
    return import_site("slurm", tmp_path)


@pytest.mark.parametrize("first", LINES)
def test_a_line_with_any_keyword_is_of_slurm_conf_however_it_is_written(
    tmp_path: Path, first: str
) -> None:
    for key, form, head in product(LINES[first], FORMS, ("", HEAD)):
        assert kind_of(tmp_path, head + form(first, key)) == "slurm.conf", (key, form(first, key))


def test_a_file_with_any_setting_of_the_cluster_is_of_slurm_conf(tmp_path: Path) -> None:
    for key in OF_ALL:
        assert kind_of(tmp_path, f"{key}=7\n{HEAD}") == "slurm.conf", key
        assert (
            kind_of(tmp_path, f"{HEAD}{key.upper()}=7\n", "slurm.conf.2026-01-01") == "slurm.conf"
        ), key


def test_all_keywords_together_leave_the_nodes_and_partitions_what_they_are(tmp_path: Path) -> None:
    kept = {
        "SelectType",
        "SchedulerType",
        "PreemptType",
        "PreemptMode",
        "Licenses",
        "TopologyPlugin",
    }
    made = imported(tmp_path, HEAD + "".join(f"{key}=7\n" for key in OF_ALL if key not in kept))
    assert [(g.count, g.cores) for g in made.site.nodes] == [(4, 8)]
    assert [p.name for p in made.site.cluster.partitions] == ["p"]


def test_each_setting_of_the_cluster_is_named_with_what_became_of_it(tmp_path: Path) -> None:
    made = imported(tmp_path, HEAD + "".join(f"{key}=7\n" for key in OF_ALL))
    named = {setting.name.partition(":")[0] for setting in made.site.settings}
    assert set(OF_ALL) - named == set()
    assert all(s.why or s.became == NO_EFFECT for s in made.site.settings)


def test_keywords_of_nodes_are_read_or_named(tmp_path: Path) -> None:
    for key in (*OF_NODES, "Sparkle"):
        made = imported(tmp_path, HEAD + f"NodeName=m1 CPUs=8 {key}=1\n")
        left = {s.name for s in made.site.settings if s.became == NOT_MODELED}
        unknown = key in words("RestrictedCoresPerGPU TmpDisk Topology TRESWeights Sparkle")
        assert left == ({f"NodeName: {key}"} if unknown else set()), key


READ = words(
    """
    AllocNodes CpuBind Default DefaultTime DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode
    DisableRootJobs Hidden JobDefaults MaxMemPerCPU MaxNodes MaxTime MinNodes Nodes PowerDownOnIdle
    PreemptMode Priority PriorityJobFactor PriorityTier QOS ResumeTimeout SuspendTime SuspendTimeout
    """
)
"""Keywords of partitions that are read, or say nothing of when and where jobs start."""


def test_keywords_of_partitions_are_read_or_named(tmp_path: Path) -> None:
    for key in (*OF_PARTITIONS, "Sparkle"):
        made = imported(
            tmp_path, HEAD + f"PartitionName=q Nodes=n[1-4] {key}={'n1' if key == 'Nodes' else 7}\n"
        )
        left = {s.name for s in made.site.settings if s.became == NOT_MODELED}
        assert left == (set() if key in READ else {f"q: {key}"}), key


def test_weights_of_nodes_are_named_where_jobs_have_whole_nodes(tmp_path: Path) -> None:
    made = imported(tmp_path, HEAD + "NodeName=m1 CPUs=8 Weight=5\nSelectType=select/linear\n")
    assert "NodeName: Weight" in {s.name for s in made.site.settings if s.became == NOT_MODELED}


def test_front_ends_are_reported_by_name(tmp_path: Path) -> None:
    made = imported(tmp_path, HEAD + "FrontendName=f[1-2] State=UP\n")
    left = {s.name for s in made.site.settings if s.became == NOT_MODELED}
    assert left == {"FrontendName", "FrontendName: State"}


def test_priorities_without_their_plugin_are_reported_by_name(tmp_path: Path) -> None:
    lines = "PriorityWeightAge=5\nPriorityMaxAge=7-0\n"
    made = imported(tmp_path, HEAD + lines)
    why = {s.name: s.why for s in made.site.settings if s.became == NOT_MODELED}
    assert "PriorityType is missing" in why["PriorityWeightAge"]
    made = imported(tmp_path, HEAD + lines + "PriorityType=priority/basic\n")
    assert {s.became for s in made.site.settings if s.name == "PriorityMaxAge"} == {NO_EFFECT}


NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=4 \n   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.1\n"
    "   State=IDLE ThreadsPerCore=1\n   Partitions=p \n"
)
SHOWN = "PartitionName=p\n   AllowGroups=ALL\n   Nodes=n1\n   State=UP TotalCPUs=8 TotalNodes=1\n"
ONE_LINE = [text.replace("\n   ", " ") for text in (NODE, SHOWN)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (NODE, "scontrol show node"),
        (ONE_LINE[0], "scontrol show node"),
        (NODE.replace("\n", "\r\n"), "scontrol show node"),
        (SHOWN, "scontrol show partition"),
        (ONE_LINE[1], "scontrol show partition"),
        (NODE + "\n" + SHOWN, "scontrol show node, scontrol show partition"),
        ("ReservationName=r StartTime=2026-01-01T00:00:00 EndTime=x\n", "scontrol show reservation"),
        ("No reservations in the system\n", "scontrol show reservation"),
        ("$ scontrol show config\nConfiguration data as of 2026-01-01T00:00:00\n", "scontrol show config"),
        ("Name=gpu File=/dev/nvidia0\n", "gres.conf"),
        ("NodeName=n1 Name=fpga Count=2\n", "gres.conf"),
        ("NodeName=n1 Autodetect=nvml Name=gpu Type=2080ti\n", "gres.conf"),
        ("AutoDetect=nvml\n", "gres.conf"),
        ("switchname=s Nodes=n1\n", "topology.conf"),
        ("BlockName=b Nodes=n[1-4]\nBlockSizes=4\n", "topology.conf"),
        ("Include /etc/slurm/nodes.conf\n", "slurm.conf"),
        ("# JobID|State|name\n" + HEAD, "slurm.conf"),
        ("Feature=x NodeName=n1 Helper=/bin/x\n", "helpers.conf, without effect on starts of jobs"),
        ("NodeName=n1 BasePath=/x\n", "job_container.conf, without effect on starts of jobs"),
        ("Cluster - 'c'\nParent - 'root'\n", "sacctmgr dump"),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\np* up 1:00 1 idle n1\n", ""),
        ("JobId=1 JobName=x\n   Partition=p NodeList=n1\n", ""),
        ("DbdHost=h\nStorageType=accounting_storage/mysql\n", ""),
        ("hello=world\n", ""),
    ],
)  # fmt: skip
def test_files_are_known_by_keys_that_no_other_kind_has(
    tmp_path: Path, text: str, kind: str
) -> None:
    assert kind_of(tmp_path, text, "x.txt") == kind


def test_recorded_files_are_known_by_their_content_alone(tmp_path: Path) -> None:
    kinds = {
        path.name: kind_of(tmp_path, path.read_text(), "file")
        for path in sorted(RECORDED.iterdir())
    }
    assert kinds["slurm.conf"] == kinds["nodes.conf"] == "slurm.conf"
    assert kinds["gres.conf"] == "gres.conf"
    assert (kinds["nodes.txt"], kinds["partitions.txt"]) == (
        "scontrol show node",
        "scontrol show partition",
    )


def test_nodes_and_partitions_may_be_printed_into_one_file(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(NODE + "\n" + SHOWN)
    made = import_site("slurm", tmp_path)
    assert [(g.count, g.cores) for g in made.site.nodes] == [(1, 8)]
    assert [p.name for p in made.site.cluster.partitions] == ["p"]
