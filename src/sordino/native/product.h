/* Matrix products whose rows do not touch each other, and the functions that compute them on one kind of processor. */
#ifndef SORDINO_PRODUCT
#define SORDINO_PRODUCT

#include "compiler.h"

typedef struct {
  long rows, columns; /* of a tile */
  long band, deep;    /* rows that `multiply` packs at a time, and positions that `add_outer` does */
  void (*pack)(const float *x, long step, long depth, long count, float *to);
  void (*multiply)(const float *x, const float *packed, const float *start, long n, long depth, long count, float *out, float *scratch);
  void (*outer)(const float *g, long g_next, long g_step, const float *a, long a_next, long a_step, long n, long depth, long o, long k,
                float *out, double *squares, float *scratch);
  void (*add_outer)(const float *g, long g_next, long g_step, const float *a, long a_next, long a_step, const double *f, long n,
                    long depth, long o, long k, double *out, double *scratch);
} products;

extern const products sordino_products_v3, sordino_products_v4;

const products *sordino_products(void); /* those of this processor; NULL if a library is faster */

#endif
