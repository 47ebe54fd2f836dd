import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

/** A grown heap, a pool of threads and compiled code: java Heap.java STEPS */
public class Heap {
    public static void main(String[] words) throws Exception {
        Map<Integer, byte[]> heap = new HashMap<>();
        for (int n = 0; n < 1500; n++) {
            byte[] block = new byte[100_000];
            block[n] = (byte) n;
            heap.put(n, block);
        }
        var pool = Executors.newFixedThreadPool(8, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        for (int step = 0; step < Integer.parseInt(words[0]); step++) {
            for (var entry : heap.entrySet())
                if (entry.getValue()[entry.getKey()] != (byte) (int) entry.getKey())
                    throw new IllegalStateException("entry " + entry.getKey());
            int number = step;
            if (pool.submit(() -> 2 * number).get() != 2 * step) throw new IllegalStateException("pool");
            for (int n = 0; n < 100; n++) heap.put(2000, new byte[100_000]);
            heap.remove(2000);
            System.out.println("ok " + step);
            Thread.sleep(200);
        }
    }
}
