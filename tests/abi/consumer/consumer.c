/* The census: with q = 0 every visible key weighs the same, so o is the plain mean of V and lse is
 * ln n. Small enough to check by eye, and wrong if the installed library or header is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tilewise/tilewise.h>

enum { kKeys = 3, kDim = 8 };

static int run(void* workspace, uint64_t bytes) {
  float q[kDim] = {0}, k[kKeys * kDim] = {0}, v[kKeys * kDim], o[kDim], lse = 0;
  for (int i = 0; i < kKeys * kDim; ++i) v[i] = (float)(i / kDim);

  tw_kv_cache cache = {0};
  cache.struct_size = sizeof cache;
  cache.k = k;
  cache.v = v;
  cache.k_token_stride = cache.v_token_stride = kDim;
  cache.kv_capacity = kKeys;
  cache.kv_len = kKeys;

  tw_attention_args args = {0};
  args.struct_size = sizeof args;
  args.q_dtype = TW_DTYPE_FP32;
  args.batch = args.q_heads = args.kv_heads = args.q_len = 1;
  args.head_dim = kDim;
  args.max_kv_len = kKeys;
  args.q = q;
  args.o = o;
  args.lse = &lse;
  args.kv = &cache;
  args.workspace = workspace;
  args.workspace_bytes = bytes;
  if (tw_attention(&args) != TW_OK) {
    printf("tw_attention: %s\n", tw_last_error());
    return 1;
  }
  printf("mean %g, lse %g\n", (double)o[0], (double)lse);
  for (int d = 0; d < kDim; ++d) {
    if (fabs((double)o[d] - 1.0) > 1e-6) return 1;
  }
  return fabs((double)lse - log(3.0)) < 1e-6 ? 0 : 1;
}

int main(void) {
  const uint64_t bytes = (uint64_t)1 << 20;
  char* raw = malloc(bytes + 256);
  if (raw == NULL) return 1;
  const int failed = run(raw + (256 - (uintptr_t)raw % 256) % 256, bytes);
  free(raw);
  return failed;
}
