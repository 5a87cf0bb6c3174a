// Launch choice of the CUDA backend, for devices that this machine need not have.
#include "plan/cuda_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "core/rows.h"
#include "core/tile_shapes.h"

namespace tilewise::plan {
namespace {

using core::DType;

core::Attention dense(std::int32_t batch, std::int64_t q_len, std::int64_t keys,
                      std::int32_t q_heads = 32, std::int32_t kv_heads = 8,
                      std::int32_t head_dim = 128) {
  core::Attention a{};
  a.q_dtype = a.kv_dtype = a.o_dtype = DType::kBf16;
  a.batch = batch;
  a.q_heads = q_heads;
  a.kv_heads = kv_heads;
  a.head_dim = a.v_head_dim = head_dim;
  a.q_len = a.max_q_len = q_len;
  a.total_q = batch * q_len;
  a.kv.max_kv_len = keys;
  return a;
}

CudaPlan plan_of(const core::Attention& a, const CudaFacts& facts = h200_facts(),
                 std::int32_t variant = 0) {
  CudaPlan p;
  const core::Status status = plan_cuda_attention(a, facts, variant, &p);
  EXPECT_TRUE(status.ok()) << status.text();
  return p;
}

// A device of compute capability 8.6: little shared memory, no clusters.
CudaFacts small_device() { return {true, 86, 84, 101376, 102400, "8.6"}; }

TEST(CudaPlan, FewRowsShareAClusterAndManyFoldAlone) {
  EXPECT_EQ(plan_of(dense(1, 1, 1024)).variant, CudaVariant::kMmaCluster);
  EXPECT_EQ(plan_of(dense(1, 1, 1024)).parts, 8);
  EXPECT_EQ(plan_of(dense(1, 1, 32768)).parts, 16);
  EXPECT_EQ(plan_of(dense(64, 1, 1024)).variant, CudaVariant::kMmaSelf);
  EXPECT_EQ(plan_of(dense(128, 1, 8192)).variant, CudaVariant::kMmaSelf);
  EXPECT_EQ(plan_of(dense(1, 1, 64)).variant, CudaVariant::kMmaSelf) << "one chunk";
}

TEST(CudaPlan, RowsThatMayBeVeryUnevenShareByLength) {
  const CudaPlan p = plan_of(dense(16, 1, 65536));
  EXPECT_EQ(p.variant, CudaVariant::kMmaSplit);
  EXPECT_EQ(p.parts, 16);
  EXPECT_GT(p.workspace_bytes, 0u);
}

TEST(CudaPlan, EveryVariantThatIsPlannedFitsTheDevice) {
  for (const CudaFacts& facts : {h200_facts(), small_device()}) {
    for (const std::int32_t dim : {8, 32, 64, 96, 128, 192, 256}) {
      for (const std::int32_t heads : {1, 2, 8, 71}) {
        for (const std::int64_t q_len : {1, 4, 16, 300}) {
          for (std::int32_t variant = 0; variant < kCudaVariants; ++variant) {
            CudaPlan p;
            const core::Attention a = dense(3, q_len, 20000, heads * 8, heads, dim);
            if (!plan_cuda_attention(a, facts, variant, &p).ok()) continue;
            if (!p.decode || !p.mma) continue;
            EXPECT_GE(p.stages, 1);
            EXPECT_LE(p.shared_bytes, facts.smem_per_block);
            EXPECT_GE(p.tile_rows * p.row_blocks, q_len * a.group());
            EXPECT_LE(p.tile_rows, core::most_decode_rows(p.dim));
            EXPECT_LE(p.sharing == CudaSharing::kCluster ? p.parts : 1, 16);
          }
        }
      }
    }
  }
}

TEST(CudaPlan, ClustersNeedADeviceThatHasThem) {
  CudaPlan p;
  const core::Attention a = dense(1, 1, 8192);
  EXPECT_EQ(plan_cuda_attention(a, small_device(), 5, &p).code(), core::Code::kUnsupported);
  EXPECT_NE(plan_of(a, small_device()).variant, CudaVariant::kMmaCluster);
}

TEST(CudaPlan, TypesAndDimsDecideTheBody) {
  core::Attention a = dense(1, 1, 8192);
  EXPECT_TRUE(plan_of(a).mma);
  a.kv_dtype = DType::kFp16;
  EXPECT_FALSE(plan_of(a).mma) << "two 16-bit types";
  a = dense(1, 1, 8192);
  a.q_dtype = a.kv_dtype = DType::kFp32;
  EXPECT_FALSE(plan_of(a).mma);
  a = dense(1, 1, 8192);
  a.v_head_dim = 264;
  EXPECT_FALSE(plan_of(a).mma);
  CudaPlan p;
  EXPECT_EQ(plan_cuda_attention(a, h200_facts(), 4, &p).code(), core::Code::kUnsupported);
  EXPECT_EQ(plan_cuda_attention(a, h200_facts(), 1, &p).code(), core::Code::kUnsupported);
  EXPECT_EQ(plan_cuda_attention(a, h200_facts(), 7, &p).code(), core::Code::kInvalidArgument);
}

TEST(CudaPlan, TheWorkspaceDependsOnNoDeviceAndStaysBounded) {
  for (const std::int32_t batch : {1, 64, 4096, 70000}) {
    for (const std::int64_t keys : {100, 8192, 1 << 20}) {
      core::Attention a = dense(batch, 1, keys);
      const CudaPlan p = plan_of(a);
      EXPECT_EQ(p.workspace_bytes, plan_of(a, small_device()).workspace_bytes);
      EXPECT_LE(p.workspace_bytes, std::uint64_t{256} << 20);
      a.append.k = a.append.v = &a;
      a.append.dtype = DType::kFp32;
      CudaPlan converting;
      if (plan_cuda_attention(a, h200_facts(), 0, &converting).ok()) {
        EXPECT_TRUE(converting.converts);
        EXPECT_LE(converting.workspace_bytes, std::uint64_t{256} << 20);
      }
    }
  }
}

TEST(CudaPlan, ExplainNamesTheVariantAndCutsAtTheCapacity) {
  const core::Attention a = dense(1, 1, 8192);
  const CudaPlan p = plan_of(a);
  char text[2000];
  const std::size_t length = explain_cuda_attention(a, h200_facts(), p, text, sizeof text);
  EXPECT_EQ(length, std::string(text).size());
  EXPECT_NE(std::string(text).find("variant: 5 ("), std::string::npos) << text;
  char small[8];
  EXPECT_EQ(explain_cuda_attention(a, h200_facts(), p, small, sizeof small), length);
  EXPECT_EQ(std::string(small), "variant");
}

}  // namespace
}  // namespace tilewise::plan
