/* For linux.uml on a CPU with AMX, loaded before it: user-mode Linux restores the floating-point state of its processes
   with a buffer that is too small for that CPU's state, and the kernel takes all of it or nothing (EFAULT). What
   user-mode Linux gives is laid over the state that the process has.

   gcc -O2 -shared -fPIC -o amx_state.so amx_state.c */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char state[1 << 16] __attribute__((aligned(64)));

long ptrace(enum __ptrace_request request, ...) {
  va_list arguments;
  va_start(arguments, request);
  pid_t process = va_arg(arguments, pid_t);
  void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
    struct iovec *given = data, whole = {state, sizeof state};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, process, address, &whole) == 0 && given->iov_len < whole.iov_len) {
      memcpy(state, given->iov_base, given->iov_len);
      return syscall(SYS_ptrace, PTRACE_SETREGSET, process, address, &whole);
    }
  }
  if (request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER) {
    /* The system call stores the word, where the function returns it. */
    long word;
    if (syscall(SYS_ptrace, request, process, address, &word) < 0) return -1;
    errno = 0;
    return word;
  }
  return syscall(SYS_ptrace, request, process, address, data);
}
