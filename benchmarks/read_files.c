/* Reads the kernel's files that a list names, as often as it says, and does nothing with them: what any agent that reads
   them pays at least. A line of the list is "kept COUNT PATH" for a file that stays open, "opened COUNT PATH" for one
   that is opened each time, with the count of SECONDS.

   gcc -O2 -o read_files read_files.c; read_files LIST SECONDS prints microseconds of CPU, files read, files that failed */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct file {
  char *path;
  int is_kept, descriptor;
  long count;
};

static char content[1 << 16];
static long files_read, failures;

static void read_once(struct file *file) {
  if (file->is_kept && file->descriptor >= 0) {
    if (pread(file->descriptor, content, sizeof content, 0) < 0) failures++;
  } else {
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      failures++;
      return;
    }
    ssize_t size;
    while ((size = read(descriptor, content, sizeof content)) > 0);
    if (size < 0) failures++;
    if (file->is_kept) file->descriptor = descriptor;
    else close(descriptor);
  }
  files_read++;
}

static long cpu_micros(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static struct file *read_list(const char *path, size_t *number) {
  FILE *list = fopen(path, "r");
  struct file *files = NULL;
  char kind[8], name[4096];
  long count;
  if (!list) return NULL;
  for (*number = 0; fscanf(list, "%7s %ld %4095[^\n]", kind, &count, name) == 3; (*number)++) {
    files = realloc(files, (*number + 1) * sizeof *files);
    if (!files) break;
    files[*number] = (struct file){strdup(name), kind[0] == 'k', -1, count};
  }
  fclose(list);
  return files;
}

int main(int argc, char **argv) {
  size_t number;
  struct file *files = argc == 3 ? read_list(argv[1], &number) : NULL;
  if (!files) return 1;
  long seconds = atol(argv[2]);
  /* What is kept is open before it counts. */
  for (size_t i = 0; i < number; i++)
    if (files[i].is_kept) read_once(&files[i]);
  files_read = failures = 0;
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  long before = cpu_micros();
  for (long second = 0; second < seconds; second++) {
    for (size_t i = 0; i < number; i++) {
      long times = files[i].count * (second + 1) / seconds - files[i].count * second / seconds;
      while (times-- > 0) read_once(&files[i]);
    }
    due.tv_sec++;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
  }
  printf("%ld %ld %ld\n", cpu_micros() - before, files_read, failures);
  return 0;
}
