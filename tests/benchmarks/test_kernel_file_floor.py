from __future__ import annotations

from benchmarks.kernel_file_floor import FilesRead, counted, figures

_STAT = "/sys/fs/cgroup/memory/kubepods/pod1/memory.stat"


def test_what_is_read_without_being_opened_is_kept_open() -> None:
    lines = [f'pread64(15<{_STAT}>, ""..., 16384, 0) = 1074'] * 4
    assert counted(lines, 2) == FilesRead(2, {_STAT: 4}, {})


def test_what_is_opened_each_time_is_counted_once_by_whatever_call_it_is_read() -> None:
    lines = [
        'openat(AT_FDCWD</root>, "/proc/stat", O_RDONLY|O_CLOEXEC) = 7</proc/stat>',
        f'openat(AT_FDCWD</root>, "{_STAT}", O_RDONLY|O_CLOEXEC) = 8<{_STAT}>',
        f'pread64(8<{_STAT}>, ""..., 16384, 0) = 1074',
    ]
    assert counted(lines, 1) == FilesRead(1, {}, {"/proc/stat": 1, _STAT: 1})


def test_a_file_that_was_opened_anew_is_kept_open_for_the_other_readings() -> None:
    opened = f'openat(AT_FDCWD</root>, "{_STAT}", O_RDONLY|O_CLOEXEC) = 8<{_STAT}>'
    read = f'pread64(8<{_STAT}>, ""..., 16384, 0) = 1074'
    assert counted([opened, read, read, read], 1) == FilesRead(1, {_STAT: 2}, {_STAT: 1})


def test_only_files_of_the_kernel_that_could_be_read_count() -> None:
    lines = [
        'openat(AT_FDCWD</root>, "/etc/hosts", O_RDONLY|O_CLOEXEC) = 7</etc/hosts>',
        'openat(AT_FDCWD</root>, "/proc/1/stat", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)',
        'openat(AT_FDCWD</root>, "/sys/fs/cgroup", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 7</sys/fs/cgroup>',
        'openat(AT_FDCWD</root>, "/proc/1/oom_score_adj", O_WRONLY|O_CLOEXEC) = 7</proc/1/oom_score_adj>',
        f"pread64(15<{_STAT}>, 0x7f, 16384, 0) = -1 ENODEV (No such device)",
        'pread64(3</var/lib/koordlet/metrics.db>, ""..., 4096, 0) = 4096',
        "--- SIGCHLD {si_signo=SIGCHLD} ---",
    ]
    assert counted(lines, 1) == FilesRead(1, {}, {})


def test_the_share_above_the_floor_is_what_reading_does_not_explain() -> None:
    files = FilesRead(10, {_STAT: 30}, {"/proc/stat": 10})
    found = figures(files, floor=0.5, used=2.0)
    assert found["files_per_second"] == 4
    assert found["of_these_opened_each_time"] == 1
    assert found["share_of_ours_above"] == 0.75
    assert found["ours_times_floor"] == 4
