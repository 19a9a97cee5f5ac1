/* One block of convolution, pooling and ReLU, and the functions that compute it on one kind of processor. */
#ifndef SORDINO_BLOCK
#define SORDINO_BLOCK

#include "compiler.h"

typedef struct {
  long n, h, w, c;  /* input: examples, height, width, channels */
  long o, kh, kw;   /* output channels, kernel */
  long top, left;   /* padding with zeros, the same at the other end */
  long ph, pw;      /* what is pooled: windows of this size */
} block;

typedef struct {
  void (*pool)(const float *y, const block *s, int relu, float *out, int32_t *where);
  int (*convolves)(const block *s);
  long (*forward_scratch)(const block *s);
  void (*forward)(const float *x, const float *weight, const float *bias, const block *s, int relu, float *out,
                  int32_t *where, float *scratch);
  long (*backward_scratch)(const block *s);
  void (*backward)(const float *g, const float *out, const int32_t *where, const float *x, const float *weight,
                   const block *s, int relu, int each, float *dw, float *db, float *dx, float *scratch);
} kernels;

extern const kernels sordino_block_plain, sordino_block_v3, sordino_block_v4;

#endif
