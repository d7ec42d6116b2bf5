/*
summary: Thrust's sets of sorted items, with values and without, ranges of equals, and vectors that are inserted into and read backwards
inputs:
  a: integers(0, 60, 300).sort().values
  b: integers(30, 90, 200).sort().values
  x: normal(300)
  y: normal(200)
outputs:
  either: full((500,), -1, dtype=torch.int32)
  both: full((300,), -1, dtype=torch.int32)
  without: full((300,), -1, dtype=torch.int32)
  one: full((500,), -1, dtype=torch.int32)
  either_values: zeros(500)
  both_values: zeros(300)
  without_values: zeros(300)
  one_values: zeros(500)
  falling: full((500,), -1, dtype=torch.int32)
  told: new(12, dtype=torch.int32)
  inserted: new(307, dtype=torch.int32)
sizes: [300, 200]
expected:
  either: padded([key for key, _ in union(rows(a, x), rows(b, y))], 500)
  both: padded([key for key, _ in intersection(rows(a, x), rows(b, y))], 300)
  without: padded([key for key, _ in difference(rows(a, x), rows(b, y))], 300)
  one: padded([key for key, _ in symmetric(rows(a, x), rows(b, y))], 500)
  either_values: values(union(rows(a, x), rows(b, y)), 500)
  both_values: values(intersection(rows(a, x), rows(b, y)), 300)
  without_values: values(difference(rows(a, x), rows(b, y)), 300)
  one_values: values(symmetric(rows(a, x), rows(b, y)), 500)
  falling: padded([key for key, _ in union(rows(a, x), rows(b, y))][::-1], 500)
  told: told(a, b)
  inserted: torch.cat([a[:100], torch.tensor([7]), a[100:200], b[:4], a[200:], torch.tensor([5, 5])]).flip(0).int()
helpers: |
  import bisect
  def rows(keys, items):
      out, seen = [], {}
      for key, item in zip(keys.tolist(), items.tolist()):
          seen[key] = seen.get(key, -1) + 1
          out.append(((key, seen[key]), item))
      return out
  def keyed(chosen):
      return [(key, item) for (key, _), item in sorted(chosen, key=lambda row: row[0])]
  def union(a, b):
      return keyed(list({**dict(b), **dict(a)}.items()))
  def intersection(a, b):
      return keyed([row for row in a if row[0] in dict(b)])
  def difference(a, b):
      return keyed([row for row in a if row[0] not in dict(b)])
  def symmetric(a, b):
      return keyed([row for row in a if row[0] not in dict(b)] + [row for row in b if row[0] not in dict(a)])
  def padded(keys, n):
      return torch.tensor(keys + [-1] * (n - len(keys))).int()
  def values(chosen, n):
      return F.pad(torch.tensor([item for _, item in chosen]), (0, n - len(chosen)))
  def told(a, b):
      a, b = a.tolist(), b.tolist()
      low, high = bisect.bisect_left(a, 41), bisect.bisect_right(a, 41)
      return torch.tensor([low, high, high - low, 300, 300, 307, b[-1], a[0], len(union(rows(torch.tensor(a), torch.zeros(300)), rows(torch.tensor(b), torch.zeros(200)))),
                           bisect.bisect_left(a, b[0]), bisect.bisect_right(a, b[150]), int(b[20] in a)]).int()
*/
#include <cuda_runtime.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/reverse_iterator.h>
#include <thrust/set_operations.h>

extern "C" void run(const void* const* in, void* const* out, const long long* size) {
    const int n = (int)size[0], m = (int)size[1];
    const int *pa = (const int*)in[0], *pb = (const int*)in[1];
    const thrust::device_ptr<const float> x((const float*)in[2]), y((const float*)in[3]);
    const thrust::device_ptr<const int> begin_a(pa), begin_b(pb);
    const thrust::device_vector<int> a(begin_a, begin_a + n), b(begin_b, begin_b + m);
    auto keys = [&](int i) { return thrust::device_pointer_cast((int*)out[i]); };
    auto values = [&](int i) { return thrust::device_pointer_cast((float*)out[i]); };

    auto end = thrust::set_union(a.begin(), a.end(), b.begin(), b.end(), keys(0));
    thrust::set_intersection(thrust::device, pa, pa + n, pb, pb + m, (int*)out[1]);
    thrust::set_difference(a.begin(), a.end(), b.begin(), b.end(), keys(2), thrust::less<int>());
    thrust::set_symmetric_difference(thrust::device, a.begin(), a.end(), b.begin(), b.end(), keys(3));

    thrust::device_vector<int> found(n + m);
    thrust::set_union_by_key(a.begin(), a.end(), b.begin(), b.end(), x, y, found.begin(), values(4));
    auto ends = thrust::set_intersection_by_key(a.begin(), a.end(), b.begin(), b.end(), x, found.begin(), values(5));
    const int both = (int)(ends.first - found.begin());
    thrust::set_difference_by_key(a.begin(), a.end(), b.begin(), b.end(), x, y, found.begin(), values(6), thrust::less<int>());
    thrust::set_symmetric_difference_by_key(thrust::device, a.begin(), a.end(), b.begin(), b.end(), x, y, found.begin(), values(7));
    thrust::set_union(a.rbegin(), a.rend(), b.rbegin(), b.rend(), keys(8), thrust::greater<int>());

    thrust::host_vector<int> told(12);
    auto same = thrust::equal_range(a.begin(), a.end(), 41);
    told[0] = (int)(same.first - a.begin());
    told[1] = (int)(same.second - a.begin());
    auto raw = thrust::equal_range(thrust::device, pa, pa + n, 41, thrust::less<int>());
    told[2] = (int)(raw.second - raw.first);
    auto none = thrust::equal_range(a.begin(), a.end(), 1000);
    told[3] = (int)(none.first - a.begin());
    told[4] = (int)(none.second - a.begin());

    thrust::device_vector<int> grown(a);
    auto hole = grown.insert(grown.begin() + 100, 7);
    grown.insert(hole + 101, b.begin(), b.begin() + 4);
    grown.insert(grown.end(), 2, 5);
    told[5] = (int)grown.size();
    told[6] = *b.rbegin();
    told[7] = *(a.rend() - 1);
    told[8] = (int)(end - keys(0));
    thrust::device_vector<int> asked(3), places(3);
    asked[0] = b[0], asked[1] = b[150], asked[2] = b[20];
    thrust::lower_bound(a.begin(), a.end(), asked.begin(), asked.begin() + 1, places.begin());
    thrust::upper_bound(a.begin(), a.end(), asked.begin() + 1, asked.begin() + 2, places.begin() + 1);
    thrust::binary_search(a.begin(), a.end(), asked.begin() + 2, asked.end(), places.begin() + 2);
    thrust::copy(places.begin(), places.end(), told.begin() + 9);
    if ((int)(ends.second - values(5)) != both) told[0] = -1;
    cudaMemcpy(out[9], told.data(), 12 * sizeof(int), cudaMemcpyHostToDevice);
    thrust::copy(grown.rbegin(), grown.rend(), keys(10));
}
