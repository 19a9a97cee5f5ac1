/* The products of product.inc as this processor computes them best. Where it has no wide registers a library is faster. */
#include <stddef.h>

#include "product.h"

const products *sordino_products(void) {
#if MANY_KINDS
  if (__builtin_cpu_supports("x86-64-v4")) return &sordino_products_v4;
  if (__builtin_cpu_supports("x86-64-v3")) return &sordino_products_v3;
#endif
  return NULL;
}

/* The four sizes of product.h; whether there are any. */
EXPORT int sordino_tile(long *sizes) {
  const products *made = sordino_products();
  if (made) sizes[0] = made->rows, sizes[1] = made->columns, sizes[2] = made->band, sizes[3] = made->deep;
  return made != NULL;
}

EXPORT void sordino_pack(const float *x, long step, long depth, long count, float *to) {
  sordino_products()->pack(x, step, depth, count, to);
}

EXPORT void sordino_multiply(const float *x, const float *packed, const float *start, long n, long depth, long count, float *out,
                             float *scratch) {
  sordino_products()->multiply(x, packed, start, n, depth, count, out, scratch);
}

EXPORT void sordino_outer_each(const float *g, long g_next, long g_step, const float *a, long a_next, long a_step, long n, long depth,
                               long o, long k, float *out, double *squares, float *scratch) {
  sordino_products()->outer(g, g_next, g_step, a, a_next, a_step, n, depth, o, k, out, squares, scratch);
}

EXPORT void sordino_add_outer(const float *g, long g_next, long g_step, const float *a, long a_next, long a_step, const double *f, long n,
                              long depth, long o, long k, double *out, double *scratch) {
  sordino_products()->add_outer(g, g_next, g_step, a, a_next, a_step, f, n, depth, o, k, out, scratch);
}
