/* What is asked of the compiler: code for several kinds of processor in one library, of which the best runs. */
#ifndef SORDINO_COMPILER
#define SORDINO_COMPILER

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MANY_KINDS 1
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MANY_KINDS 0
#define WIDEST
#endif

#endif
