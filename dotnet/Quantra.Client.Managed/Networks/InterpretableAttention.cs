using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Quantra.Client.Managed;

/// <summary>Attention heads with a shared value, averaged (section 4.4 of Lim et al. 2021); each query sees the sessions up to its own.</summary>
internal sealed class InterpretableAttention<TVector>
    where TVector : struct, IVector<TVector>
{
    private readonly int _heads;
    private readonly int _headWidth;
    private readonly int[] _ends;
    private readonly int _sessions;
    private readonly int _scoreWidth;
    private readonly Linear<TVector> _query;
    private readonly Linear<TVector> _key;
    private readonly Linear<TVector> _value;
    private readonly Linear<TVector> _out;

    /// <summary>Reads the weights.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="width">Width of queries, keys and the result.</param>
    /// <param name="heads">A divisor of the width.</param>
    /// <param name="ends">Session of each query.</param>
    /// <param name="sessions">Number of sessions.</param>
    public InterpretableAttention(NetworkWeights weights, int width, int heads, int[] ends, int sessions)
    {
        (_heads, _headWidth, _ends, _sessions) = (heads, width / heads, ends, sessions);
        _scoreWidth = Kernels<TVector>.Padded(sessions);
        _query = Linear<TVector>.Read(weights, "attention.query", width, width, bias: false);
        _key = Linear<TVector>.Read(weights, "attention.key", width, width, bias: false);
        _value = Linear<TVector>.Read(weights, "attention.value", width, _headWidth, bias: false);
        _out = Linear<TVector>.Read(weights, "attention.out", _headWidth, width, bias: false);
    }

    /// <summary>Values of scratch memory.</summary>
    public int Scratch(int windows) =>
        (_sessions * windows * (_key.Width + _value.Width)) + (_ends.Length * windows * (_query.Width + _value.Width))
        + (_scoreWidth * (_headWidth + 2));

    /// <summary>Attends from the queries to all sessions.</summary>
    /// <param name="sessions">[sessions, windows, width] attended sessions; the queries are those of the ends.</param>
    /// <param name="windows">Number of windows.</param>
    /// <param name="scratch">Memory of Scratch values.</param>
    /// <param name="result">[queries, windows, width]</param>
    public void Run(ref float sessions, int windows, ref float scratch, ref float result)
    {
        int width = _key.Width, count = _ends.Length;
        ref var keys = ref scratch;
        ref var values = ref Unsafe.Add(ref keys, _sessions * windows * width);
        ref var queries = ref Unsafe.Add(ref values, _sessions * windows * _value.Width);
        ref var attended = ref Unsafe.Add(ref queries, count * windows * width);
        ref var parts = ref Unsafe.Add(ref attended, count * windows * _value.Width);
        _key.Run(ref sessions, width, _sessions * windows, ref keys);
        _value.Run(ref sessions, width, _sessions * windows, ref values);
        for (var query = 0; query < count; query++)
        {
            _query.Run(
                ref Unsafe.Add(ref sessions, _ends[query] * windows * width), width, windows,
                ref Unsafe.Add(ref queries, query * windows * width));
        }
        Kernels<TVector>.Divide(ref queries, count * windows * width, MathF.Sqrt(_headWidth));
        MemoryMarshal.CreateSpan(ref attended, count * windows * _value.Width).Clear();
        for (var window = 0; window < windows; window++)
        {
            for (var query = 0; query < count; query++)
            {
                var row = (query * windows) + window;
                Attend(
                    ref Unsafe.Add(ref queries, row * width), ref Unsafe.Add(ref keys, window * width), windows * width,
                    ref Unsafe.Add(ref values, window * _value.Width), windows * _value.Width,
                    _ends[query] + 1, ref parts, ref Unsafe.Add(ref attended, row * _value.Width));
            }
        }
        _out.Run(ref attended, _value.Width, count * windows, ref result);
    }

    /// <summary>Attends on a tape.</summary>
    /// <returns>The result, and the shares of the sessions [queries, windows, heads, sessions].</returns>
    public (TapeMatrix Attended, TapeMatrix Shares) Record(Tape<TVector> tape, TapeMatrix sessions, TapeMatrix ends, int windows)
    {
        var (attended, shares) = tape.Attend(
            windows, _query.Record(tape, ends), _key.Record(tape, sessions), 0, _value.Record(tape, sessions), 0, (_heads, _headWidth),
            [.. _ends.SelectMany(end => Enumerable.Repeat(end + 1, windows))], isShared: true);
        return (_out.Record(tape, attended), shares);
    }

    /// <summary>Computes the attention of one query, averaged over the heads, and the weighted sum of the values.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private void Attend(
        ref float query, ref float keys, int keyStride, ref float values, int valueStride, int visible, ref float scratch, ref float result)
    {
        ref var mean = ref scratch;
        ref var scores = ref Unsafe.Add(ref scratch, _scoreWidth);
        MemoryMarshal.CreateSpan(ref mean, _scoreWidth).Clear();
        for (var head = 0; head < _heads; head++)
        {
            for (var session = 0; session < visible; session++)
            {
                ref var key = ref Unsafe.Add(ref keys, (session * keyStride) + (head * _headWidth));
                var sum = 0f;
                for (var k = 0; k < _headWidth; k++)
                    sum = MathF.FusedMultiplyAdd(Unsafe.Add(ref query, (head * _headWidth) + k), Unsafe.Add(ref key, k), sum);
                Unsafe.Add(ref scores, session) = sum;
            }
            Kernels<TVector>.Softmax(ref scores, _scoreWidth, 1, visible);
            for (nuint k = 0; k < (nuint)_scoreWidth; k += (nuint)TVector.Lanes)
                (TVector.Load(ref mean, k) + TVector.Load(ref scores, k)).Store(ref mean, k);
        }
        Kernels<TVector>.Divide(ref mean, _scoreWidth, _heads);
        for (var session = 0; session < visible; session++)
        {
            var share = TVector.Of(Unsafe.Add(ref mean, session));
            ref var value = ref Unsafe.Add(ref values, session * valueStride);
            for (nuint k = 0; k < (nuint)_value.Width; k += (nuint)TVector.Lanes)
                TVector.MultiplyAdd(share, TVector.Load(ref value, k), TVector.Load(ref result, k)).Store(ref result, k);
        }
    }
}
