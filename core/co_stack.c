#include "core/co_stack.h"

#include <pthread.h>
#include <sys/mman.h>

#include "core/co.h"
#include "core/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define CO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CO_ASAN 1
#endif
#endif

#ifdef CO_ASAN
#include <sanitizer/asan_interface.h>
enum { STACK_BYTES = CO_STACK_BYTES * 4 }; /* redzones make every frame several times larger */
#else
enum { STACK_BYTES = CO_STACK_BYTES };
#endif

typedef struct {
    void *idle[CO_STACK_CACHE_MAX];
    size_t count;
    bool is_registered; /* for cleaning at the thread's end */
} cache_t;

static __thread cache_t cache;
static pthread_key_t cache_key;
static pthread_once_t cache_once = PTHREAD_ONCE_INIT;

static void unmap(void *base)
{
    (void)munmap((char *)base - CO_STACK_GUARD_BYTES, CO_STACK_GUARD_BYTES + STACK_BYTES);
}

static void empty_cache(void *arg)
{
    cache_t *c = arg;
    while (c->count > 0)
        unmap(c->idle[--c->count]);
}

static void make_key(void)
{
    if (pthread_key_create(&cache_key, empty_cache) != 0)
        mem_fatal("no thread key for coroutine stacks");
}

void co_stack_take(co_stack_t *stack)
{
    stack->size = STACK_BYTES;
    if (cache.count > 0) {
        stack->base = cache.idle[--cache.count];
        return;
    }
    /* NORESERVE: most coroutines touch a few pages, so their whole size is not counted against the commit limit. */
    char *map = mmap(NULL, CO_STACK_GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED || mprotect(map, CO_STACK_GUARD_BYTES, PROT_NONE) != 0)
        mem_fatal("no memory for a coroutine stack");
    stack->base = map + CO_STACK_GUARD_BYTES;
}

void co_stack_release(co_stack_t *stack)
{
    void *base = stack->base;
    stack->base = NULL;
#ifdef CO_ASAN
    /* The last frame never returned, so its redzones are still in the shadow memory. */
    __asan_unpoison_memory_region(base, STACK_BYTES);
#endif
    if (cache.count == CO_STACK_CACHE_MAX) {
        unmap(base);
        return;
    }
    if (!cache.is_registered) {
        (void)pthread_once(&cache_once, make_key);
        (void)pthread_setspecific(cache_key, &cache);
        cache.is_registered = true;
    }
    cache.idle[cache.count++] = base;
}

size_t co_stack_cached(void)
{
    return cache.count;
}
