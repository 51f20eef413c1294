"""The parser that the tests on real GPUs compare with; it runs everywhere."""

from __future__ import annotations

from tests.gpu.nvidia_smi import ListedGPU, Listing, parse

# The elements and the forms of their values are those of schema 12, as published for an A100 with MIG and an RTX 3080.
PRINTED = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
    <timestamp>Fri Aug  4 11:44:30 2023</timestamp>
    <driver_version>535.54.03</driver_version>
    <cuda_version>12.2</cuda_version>
    <attached_gpus>2</attached_gpus>
    <gpu id="00000000:01:00.0">
        <product_name>NVIDIA A100-SXM4-80GB</product_name>
        <mig_mode>
            <current_mig>Enabled</current_mig>
            <pending_mig>Enabled</pending_mig>
        </mig_mode>
        <mig_devices>
            <mig_device>
                <index>0</index>
                <fb_memory_usage>
                    <total>19968 MiB</total>
                </fb_memory_usage>
            </mig_device>
        </mig_devices>
        <uuid>GPU-aaaaaaaa-6d19-9063-b049-1e69664bb298</uuid>
        <minor_number>1</minor_number>
        <pci>
            <pci_bus_id>00000000:01:00.0</pci_bus_id>
        </pci>
        <fb_memory_usage>
            <total>81920 MiB</total>
            <reserved>869 MiB</reserved>
            <used>50 MiB</used>
            <free>80999 MiB</free>
        </fb_memory_usage>
        <processes>
        </processes>
    </gpu>
    <gpu id="00000000:23:00.0">
        <product_name>NVIDIA GeForce RTX 3080</product_name>
        <mig_mode>
            <current_mig>N/A</current_mig>
            <pending_mig>N/A</pending_mig>
        </mig_mode>
        <mig_devices>
            None
        </mig_devices>
        <uuid>GPU-bbbbbbbb-aaaa-bbbb-cccc-0123456789ab</uuid>
        <minor_number>0</minor_number>
        <pci>
            <pci_bus_id>00000000:23:00.0</pci_bus_id>
        </pci>
        <fb_memory_usage>
            <total>10240 MiB</total>
        </fb_memory_usage>
        <processes>
            <process_info>
                <gpu_instance_id>N/A</gpu_instance_id>
                <compute_instance_id>N/A</compute_instance_id>
                <pid>1024</pid>
                <type>C</type>
                <process_name>python3</process_name>
                <used_memory>452 MiB</used_memory>
            </process_info>
            <process_info>
                <pid>1025</pid>
                <type>C</type>
                <process_name>hidden</process_name>
                <used_memory>N/A</used_memory>
            </process_info>
        </processes>
    </gpu>
</nvidia_smi_log>
"""


def test_what_is_printed() -> None:
    a100 = ListedGPU(
        "GPU-aaaaaaaa-6d19-9063-b049-1e69664bb298", 1, "NVIDIA A100-SXM4-80GB", "00000000:01:00.0", 81920, True, {}
    )
    rtx = ListedGPU(
        "GPU-bbbbbbbb-aaaa-bbbb-cccc-0123456789ab",
        0,
        "NVIDIA GeForce RTX 3080",
        "00000000:23:00.0",
        10240,
        False,
        {1024: 452, 1025: None},
    )
    assert parse(PRINTED) == Listing("535.54.03", (a100, rtx))
