// SPDX-License-Identifier: Apache-2.0
// Attention against a cache in pages: the same as against the keys of each row one after the other, whatever the order of the pages.
#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/attention.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace {

using namespace testing_support;
using gnomon::AttentionOptions;
using gnomon::ErrorCode;

/// A cache whose pages lie in no order; pages and slots that belong to nobody hold NaN.
template <class Element>
struct Pages {
  static constexpr std::int64_t heads = 2, width = 40, value_width = 24;
  std::int64_t page_size, blocks;
  std::vector<std::int32_t> lengths, table;
  Strided<Element> keys, values;

  Pages(std::int64_t page_size_, std::vector<std::int32_t> lengths_, Order order)
      : page_size(page_size_),
        blocks((*std::max_element(lengths_.begin(), lengths_.end()) + page_size - 1) / page_size + 1),
        lengths(std::move(lengths_)),
        keys({2 * batch() * blocks + 1, heads, page_size, width}, order),
        values({2 * batch() * blocks + 1, heads, page_size, value_width}, order) {
    SequenceDraw draw(17);
    for (auto* view : {&keys, &values}) view->each([&](auto p, auto h, auto t, auto d) { view->at(p, h, t, d) = encode<Element>(NAN); });
    for (std::int64_t b = 0; b < batch(); b++) {
      for (std::int64_t block = 0; block < blocks; block++) {
        const bool used = block * page_size < lengths[static_cast<std::size_t>(b)];
        table.push_back(used ? static_cast<std::int32_t>((b * blocks + block) * 2 * 7 % keys.shape[0]) : -1);  // −1: never looked at
      }
    }
    for (std::int64_t b = 0; b < batch(); b++)
      for (std::int64_t t = 0; t < lengths[static_cast<std::size_t>(b)]; t++)
        for (std::int64_t h = 0; h < heads; h++) {
          for (std::int64_t d = 0; d < width; d++)
            at(keys, b, h, t, d) = encode<Element>(static_cast<double>(draw.whole(-4096, 4096)) / 2048);
          for (std::int64_t d = 0; d < value_width; d++)
            at(values, b, h, t, d) = encode<Element>(static_cast<double>(draw.whole(-4096, 4096)) / 2048);
        }
  }
  std::int64_t batch() const { return static_cast<std::int64_t>(lengths.size()); }
  Element& at(Strided<Element>& pages, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    return pages.at(table[static_cast<std::size_t>(b * blocks + t / page_size)], h, t % page_size, d);
  }
  gnomon::PagedCache cache() const { return {keys.view(), values.view(), table, lengths}; }

  /// The keys or values of a row, in double.
  Strided<double> row(Strided<Element>& pages, std::int64_t b) {
    Strided<double> result({1, heads, lengths[static_cast<std::size_t>(b)], pages.shape[3]}, Order::bhtd);
    result.each([&](auto, auto h, auto t, auto d) { result.at(0, h, t, d) = decode(at(pages, b, h, t, d)); });
    return result;
  }
};

/// The worst error over what is allowed, each row of the batch against the reference with its own keys; `late`: a wrong query position.
template <class Element>
double share(Pages<Element>& pages, const Strided<Element>& q, const Strided<Element>& out, std::int64_t late = 0) {
  double worst = 0;
  for (std::int64_t b = 0; b < pages.batch(); b++) {
    const auto k = pages.row(pages.keys, b), v = pages.row(pages.values, b);
    Strided<double> queries({1, q.shape[1], q.shape[2], q.shape[3]}, Order::bhtd),
        truth({1, q.shape[1], q.shape[2], out.shape[3]}, Order::bhtd);
    queries.each([&](auto, auto h, auto t, auto d) { queries.at(0, h, t, d) = decode(q.at(b, h, t, d)); });
    gnomon::MaskOptions wanted;
    wanted.queries = q.shape[2];
    wanted.keys = k.shape[2];
    wanted.right = late;
    const auto mask = gnomon::key_intervals(wanted);
    AttentionOptions options;
    options.mask = &mask;
    gnomon::reference::attention(queries.view(), k.view(), v.view(), truth.view(), options);
    truth.each([&](auto, auto h, auto t, auto d) {
      const double expected = truth.at(0, h, t, d), error = std::abs(decode(out.at(b, h, t, d)) - expected);
      worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error / (3e-6 + half_ulp<Element>(std::abs(expected) + 3e-6)));
    });
  }
  return worst;
}

using Paged = OnEveryTarget;

/// 1 to 3 queries go to the decode kernel, 40 to the other one.
template <class Element>
void every_page_size() {
  for (const std::int64_t page_size : {1, 16, 60}) {
    for (const std::int64_t queries : {1, 3, 40}) {
      SCOPED_TRACE(testing::Message() << queries << " queries, pages of " << page_size);
      Pages<Element> pages(page_size, {130, 0, 1100, 64, 1}, page_size == 16 ? Order::bthd : Order::padded);
      Strided<Element> q({pages.batch(), 4, queries, pages.width}, Order::bthd),
          out({pages.batch(), 4, queries, pages.value_width}, Order::bhtd);
      SequenceDraw draw(4);
      q.fill(draw);
      gnomon::attention(q.view(), pages.cache(), out.view());
      ASSERT_LE(share(pages, q, out), 1);
      if (queries > 1) {
        ASSERT_GT(share(pages, q, out, 1), 2) << "queries a key later would pass too";
      }
      std::swap(pages.table[0], pages.table[static_cast<std::size_t>(2 * pages.blocks)]);
      ASSERT_GT(share(pages, q, out), 2) << "any page would pass too";
      if (queries != 1) continue;
      std::swap(pages.table[0], pages.table[static_cast<std::size_t>(2 * pages.blocks)]);
      gnomon::ThreadPool pool(3);
      AttentionOptions threads;
      threads.executor = &pool;
      auto together = out;
      gnomon::attention(q.view(), pages.cache(), together.view(), threads);
      ASSERT_TRUE(same_tensor(out, together));
    }
  }
}
TEST_P(Paged, EveryPageSize) { every_page_size<float>(), every_page_size<std::uint16_t>(), every_page_size<Half>(); }
INSTANTIATE_TEST_SUITE_P(EveryTarget, Paged, testing::ValuesIn(targets()), target_name);

TEST(PagedAttention, DoublesAndMasks) {  // the reference, after gathering; a window of one's own
  Pages<double> pages(16, {50, 33}, Order::bhtd);
  Strided<double> q({2, 2, 1, pages.width}, Order::bhtd), out({2, 2, 1, pages.value_width}, Order::bhtd), all = out;
  SequenceDraw draw(4);
  q.fill(draw);
  gnomon::attention(q.view(), pages.cache(), all.view());
  EXPECT_LE(share(pages, q, all), 1);
  gnomon::MaskOptions wanted;
  wanted.queries = 1;
  wanted.keys = 50;
  wanted.key_end = pages.lengths;
  wanted.left = 0;
  wanted.right = 0;
  const auto mask = gnomon::key_intervals(wanted);
  AttentionOptions options;
  options.mask = &mask;
  gnomon::attention(q.view(), pages.cache(), out.view(), options);  // one key, whose weight is 1
  for (std::int64_t b = 0; b < 2; b++)
    EXPECT_EQ(out.at(b, 1, 0, 3), pages.at(pages.values, b, 1, pages.lengths[static_cast<std::size_t>(b)] - 1, 3));
}

TEST(PagedAttention, RefusesWhatIsNotThere) {
  Pages<float> pages(16, {50, 33}, Order::bhtd);
  Strided<float> q({2, 2, 1, pages.width}, Order::bhtd), out({2, 2, 1, pages.value_width}, Order::bhtd);
  const auto fault = [&](const gnomon::PagedCache& cache, ErrorCode code, std::initializer_list<const char*> words,
                         const AttentionOptions& options = {}) {
    return refusal_fault([&] { gnomon::attention(q.view(), cache, out.view(), options); }, code, words);
  };
  auto cache = pages.cache();
  std::vector<std::int32_t> table = pages.table;
  table[1] = static_cast<std::int32_t>(pages.keys.shape[0]);
  cache.block_table = table;
  EXPECT_EQ(fault(cache, ErrorCode::out_of_range, {"block_table", "block 1", "row 0"}), "");
  table[1] = -1;
  EXPECT_EQ(fault(cache, ErrorCode::out_of_range, {"block_table", "-1"}), "");
  cache.block_table = std::span(table).first(table.size() - 1);
  EXPECT_EQ(fault(cache, ErrorCode::invalid_argument, {"block_table", "2", "9"}), "");
  cache = pages.cache();
  const std::vector<std::int32_t> too_long{50, 81}, negative{-1, 3}, one{50};
  cache.lengths = too_long;
  EXPECT_EQ(fault(cache, ErrorCode::out_of_range, {"lengths", "row 1", "80", "81"}), "");
  cache.lengths = negative;
  EXPECT_EQ(fault(cache, ErrorCode::out_of_range, {"lengths", "-1"}), "");
  cache.lengths = one;
  EXPECT_EQ(fault(cache, ErrorCode::invalid_argument, {"lengths", "2", "1"}), "");
  cache = pages.cache();
  cache.values.shape[0]--;
  EXPECT_EQ(fault(cache, ErrorCode::invalid_argument, {"v:", "pages"}), "");
  gnomon::MaskOptions wanted;
  wanted.queries = 1;
  wanted.keys = 50;
  const auto mask = gnomon::key_intervals(wanted);  // row 1 has 33 keys
  AttentionOptions options;
  options.mask = &mask;
  EXPECT_EQ(fault(pages.cache(), ErrorCode::invalid_argument, {"mask", "row 1", "33", "50"}, options), "");
}

}  // namespace
