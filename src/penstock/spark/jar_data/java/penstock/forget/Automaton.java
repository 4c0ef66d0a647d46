package penstock.forget;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;

/** Many byte strings looked for in one pass over the content (Aho and Corasick). */
final class Automaton {
    /** Called for each occurrence: the index of the pattern, and where it ends. */
    interface Found {
        void at(int pattern, long end);
    }

    private final int[] classes = new int[256];
    private final int width;
    private final int[] next;
    private final int[] fails;
    private final int[] ends;
    private final int[] more;

    Automaton(List<byte[]> patterns) {
        int known = 1;
        int states = 1;
        for (byte[] pattern : patterns) {
            states += pattern.length;
            for (byte one : pattern) {
                if (classes[one & 0xff] == 0) {
                    classes[one & 0xff] = known++;
                }
            }
        }
        width = known;
        next = new int[states * width];
        ends = new int[states];
        more = new int[states];
        fails = new int[states];
        Arrays.fill(ends, -1);
        Arrays.fill(more, -1);
        same = new int[patterns.size()];
        Arrays.fill(same, -1);
        int made = 1;
        for (int index = 0; index < patterns.size(); index++) {
            int state = 0;
            for (byte one : patterns.get(index)) {
                int slot = state * width + classes[one & 0xff];
                if (next[slot] == 0) {
                    next[slot] = made++;
                }
                state = next[slot];
            }
            same[index] = ends[state]; // the same text for several names
            ends[state] = index;
        }
        link();
    }

    private final int[] same;

    private void link() {
        var queue = new ArrayDeque<Integer>();
        for (int kind = 0; kind < width; kind++) {
            if (next[kind] != 0) {
                queue.add(next[kind]);
            }
        }
        while (!queue.isEmpty()) {
            int state = queue.remove();
            int back = fails[state];
            more[state] = ends[back] >= 0 ? back : more[back];
            for (int kind = 0; kind < width; kind++) {
                int slot = state * width + kind;
                int there = next[back * width + kind];
                if (next[slot] == 0) {
                    next[slot] = there;
                } else {
                    fails[next[slot]] = there;
                    queue.add(next[slot]);
                }
            }
        }
    }

    boolean any(byte[] content) {
        int state = 0;
        for (byte one : content) {
            state = next[state * width + classes[one & 0xff]];
            if (ends[state] >= 0 || more[state] >= 0) {
                return true;
            }
        }
        return false;
    }

    /** Goes on in `state`, which is 0 at the beginning; gives the state at the end. `before` bytes came earlier. */
    int run(int state, byte[] content, int length, long before, Found found) {
        for (int at = 0; at < length; at++) {
            state = next[state * width + classes[content[at] & 0xff]];
            for (int end = ends[state] >= 0 ? state : more[state]; end >= 0; end = more[end]) {
                for (int pattern = ends[end]; pattern >= 0; pattern = same[pattern]) {
                    found.at(pattern, before + at + 1);
                }
            }
        }
        return state;
    }
}
