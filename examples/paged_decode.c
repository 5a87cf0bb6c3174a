/* One decode step of two requests over a paged bf16 cache, from C: describe the cache, ask for the
 * workspace, call, read the answer. Build it against an installed Tilewise
 * (examples/CMakeLists.txt). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewise/tilewise.h>

enum { kBatch = 2, kQHeads = 8, kKvHeads = 2, kDim = 64, kPage = 16, kPages = 4, kWidth = 2 };
enum { kKeyStride = kKvHeads * kDim, kRows = kPages * kPage };

/* bf16 is the upper half of a float32; the values below have no lower half. */
static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The pool holds keys of zeros, and values that name their page; requests share no page. */
static tw_kv_cache describe_cache(uint16_t* k, uint16_t* v) {
  static const int32_t lengths[kBatch] = {20, 7};
  static const int32_t table[kBatch * kWidth] = {3, 0, 2, -1};
  tw_kv_cache kv = {0};
  kv.struct_size = sizeof kv;
  kv.page_size = kPage;
  kv.num_pages = kPages;
  kv.k = k;
  kv.v = v;
  kv.k_batch_stride = kv.v_batch_stride = kPage * kKeyStride;
  kv.k_token_stride = kv.v_token_stride = kKeyStride;
  kv.k_head_stride = kv.v_head_stride = kDim;
  kv.kv_lens = lengths;
  kv.page_table = table;
  kv.page_table_width = kWidth;
  kv.page_table_rows = kBatch;
  return kv;
}

static int fail(const char* what) {
  printf("%s: %s\n", what, tw_last_error());
  return 1;
}

int main(void) {
  static uint16_t q[kBatch * kQHeads * kDim], o[kBatch * kQHeads * kDim];
  static uint16_t k[kRows * kKeyStride], v[kRows * kKeyStride];
  for (int i = 0; i < kRows * kKeyStride; ++i) v[i] = to_bf16((float)(i / (kPage * kKeyStride)));

  const tw_kv_cache kv = describe_cache(k, v);
  tw_attention_args args = {0};
  args.struct_size = sizeof args;
  args.flags = TW_CAUSAL;
  args.q_dtype = TW_DTYPE_BF16;
  args.batch = kBatch;
  args.q_heads = kQHeads;
  args.kv_heads = kKvHeads;
  args.head_dim = kDim;
  args.q_len = 1;
  args.max_kv_len = kWidth * kPage;
  args.q = q;
  args.o = o;
  args.q_batch_stride = args.o_batch_stride = kQHeads * kDim;
  args.q_token_stride = args.o_token_stride = kQHeads * kDim;
  args.q_head_stride = args.o_head_stride = kDim;
  args.kv = &kv;

  uint64_t bytes = 0;
  if (tw_attention_workspace(&args, &bytes) != TW_OK) return fail("tw_attention_workspace");
  char* raw = malloc(bytes + 256);
  if (raw == NULL) return 1;
  args.workspace = raw + (256 - (uintptr_t)raw % 256) % 256;
  args.workspace_bytes = bytes;
  const tw_status status = tw_attention(&args);
  free(raw);
  if (status != TW_OK) return fail("tw_attention");

  /* Request 0: 16 keys on page 3 and 4 on page 0, all of equal weight: 48 / 20. Request 1: page 2.
   */
  const float first = from_bf16(o[0]), second = from_bf16(o[kQHeads * kDim]);
  printf("request 0: %g (2.4 in bf16), request 1: %g (2)\n", (double)first, (double)second);
  return first > 2.39f && first < 2.41f && second > 1.99f && second < 2.01f ? 0 : 1;
}
