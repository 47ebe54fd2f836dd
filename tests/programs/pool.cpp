// A pool of threads that sum up a vector behind a condition variable: pool STEPS
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <queue>
#include <thread>
#include <vector>

int main(int, char **words) {
    const int workers = 16;
    std::vector<long> data(4 << 20, 1);
    std::queue<int> parts;
    std::mutex lock;
    std::condition_variable wake, done;
    long total = 0;
    int left = 0;
    for (int i = 0; i < workers; i++)
        std::thread([&] {
            for (;;) {
                std::unique_lock held(lock);
                wake.wait(held, [&] { return !parts.empty(); });
                int part = parts.front();
                parts.pop();
                held.unlock();
                auto begin = data.begin() + part * (data.size() / 64);
                long sum = std::accumulate(begin, begin + data.size() / 64, 0L);
                held.lock();
                total += sum;
                if (--left == 0) done.notify_one();
            }
        }).detach();
    for (int step = 0; step < atoi(words[1]); step++) {
        std::unique_lock held(lock);
        total = 0;
        left = 64;
        for (int part = 0; part < 64; part++) parts.push(part);
        wake.notify_all();
        done.wait(held, [&] { return left == 0; });
        if (total != (4L << 20) + step) return printf("broken: %ld\n", total), 1;
        data[step]++;
        printf("ok %d\n", step);
        fflush(stdout);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}
