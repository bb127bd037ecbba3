using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Quantra.Client.Managed;

/// <summary>A Transformer layer with norms first (Vaswani et al. 2017): all sessions attend to all; inner layer with GELU.</summary>
internal sealed class TransformerBlock<TVector>
    where TVector : struct, IVector<TVector>
{
    private const int Inner = 4;

    private readonly int _heads;
    private readonly int _headWidth;
    private readonly int _width;
    private readonly LayerNorm<TVector> _attentionNorm;
    private readonly LayerNorm<TVector> _innerNorm;
    private readonly Linear<TVector> _projections;
    private readonly Linear<TVector> _out;
    private readonly Linear<TVector> _first;
    private readonly Linear<TVector> _second;

    public TransformerBlock(NetworkWeights weights, string module, int width, int heads)
    {
        (_heads, _headWidth, _width) = (heads, width / heads, Kernels<TVector>.Padded(width));
        _attentionNorm = LayerNorm<TVector>.Read(weights, $"{module}.norm1", width);
        _innerNorm = LayerNorm<TVector>.Read(weights, $"{module}.norm2", width);
        _projections = Linear<TVector>.Read(
            weights, ($"{module}.self_attn.in_proj_weight", $"{module}.self_attn.in_proj_bias"), width, width, groups: 3);
        _out = Linear<TVector>.Read(weights, $"{module}.self_attn.out_proj", width, width);
        _first = Linear<TVector>.Read(weights, $"{module}.linear1", width, Inner * width);
        _second = Linear<TVector>.Read(weights, $"{module}.linear2", Inner * width, width);
    }

    private int HeadPadded => Kernels<TVector>.Padded(_headWidth);

    /// <summary>Values of scratch memory.</summary>
    public int Scratch(int sessions, int windows)
    {
        var scores = Kernels<TVector>.Padded(sessions);
        var heads = (scores * (_headWidth + sessions)) + (2 * sessions * HeadPadded);
        return (sessions * windows * ((2 * _width) + Math.Max(_projections.Width, _first.Width))) + heads;
    }

    /// <summary>Runs over sequences in place.</summary>
    /// <param name="x">[sessions, windows, width]</param>
    /// <param name="sessions">Number of sessions.</param>
    /// <param name="windows">Number of windows.</param>
    /// <param name="from">First session whose result is needed; earlier ones stay as they are.</param>
    /// <param name="scratch">Memory of Scratch values.</param>
    public void Run(ref float x, int sessions, int windows, int from, ref float scratch)
    {
        var (rows, start) = (sessions * windows, from * windows * _width);
        var needed = rows - (from * windows);
        ref var normed = ref scratch;
        ref var attended = ref Unsafe.Add(ref normed, rows * _width);
        ref var wide = ref Unsafe.Add(ref attended, rows * _width);
        ref var heads = ref Unsafe.Add(ref wide, rows * Math.Max(_projections.Width, _first.Width));
        CopyRows(ref x, rows, ref normed);
        _attentionNorm.Run(ref normed, rows);
        _projections.Run(ref normed, _width, rows, ref wide);
        MemoryMarshal.CreateSpan(ref attended, rows * _width).Clear();
        for (var window = 0; window < windows; window++)
        {
            for (var head = 0; head < _heads; head++)
                Attend(ref wide, sessions, windows, window, head, from, ref heads, ref attended);
        }
        ref var result = ref Unsafe.Add(ref x, start);
        _out.Run(ref Unsafe.Add(ref attended, start), _width, needed, ref normed);
        Kernels<TVector>.Add(ref normed, needed * _width, ref result);
        CopyRows(ref result, needed, ref normed);
        _innerNorm.Run(ref normed, needed);
        _first.Run(ref normed, _width, needed, ref wide);
        Kernels<TVector>.Gelu(ref wide, needed * _first.Width);
        _second.Run(ref wide, _first.Width, needed, ref attended);
        Kernels<TVector>.Add(ref attended, needed * _width, ref result);
    }

    /// <summary>Runs over sequences on a tape.</summary>
    /// <returns>The needed sessions, from <paramref name="from"/> on.</returns>
    public TapeMatrix Record(Tape<TVector> tape, TapeMatrix x, int windows, int from)
    {
        var sessions = x.Rows / windows;
        var (first, needed) = (from * windows, x.Rows - (from * windows));
        var wide = _projections.Record(tape, _attentionNorm.Record(tape, x));
        var (attended, _) = tape.Attend(
            windows, wide.Slice(first, needed), wide, _width, wide, 2 * _width, (_heads, _headWidth),
            [.. Enumerable.Repeat(sessions, needed)], isShared: false);
        var middle = tape.Sum(x.Slice(first, needed), _out.Record(tape, attended));
        return tape.Sum(middle, _second.Record(tape, tape.Gelu(_first.Record(tape, _innerNorm.Record(tape, middle)))));
    }

    private void CopyRows(ref float source, int rows, ref float destination) =>
        MemoryMarshal.CreateSpan(ref source, rows * _width).CopyTo(MemoryMarshal.CreateSpan(ref destination, rows * _width));

    /// <summary>Computes one head of one window for the needed sessions.</summary>
    private void Attend(
        ref float projections, int sessions, int windows, int window, int head, int from, ref float scratch, ref float attended)
    {
        int width = _projections.Width, stride = windows * width, scoreWidth = Kernels<TVector>.Padded(sessions);
        var queries = sessions - from;
        ref var own = ref Unsafe.Add(ref projections, (window * width) + (head * _headWidth));
        ref var keys = ref scratch;
        ref var scores = ref Unsafe.Add(ref keys, _headWidth * scoreWidth);
        ref var values = ref Unsafe.Add(ref scores, sessions * scoreWidth);
        ref var result = ref Unsafe.Add(ref values, sessions * HeadPadded);
        MemoryMarshal.CreateSpan(ref scratch, ((_headWidth + sessions) * scoreWidth) + (2 * sessions * HeadPadded)).Clear();
        for (var session = 0; session < sessions; session++)
        {
            ref var row = ref Unsafe.Add(ref own, session * stride);
            for (var k = 0; k < _headWidth; k++)
            {
                Unsafe.Add(ref keys, (k * scoreWidth) + session) = Unsafe.Add(ref row, _width + k);
                Unsafe.Add(ref values, (session * HeadPadded) + k) = Unsafe.Add(ref row, (2 * _width) + k);
            }
        }
        Kernels<TVector>.AddProduct(
            ref Unsafe.Add(ref own, from * stride), stride, queries, _headWidth, ref keys, scoreWidth, ref scores, scoreWidth);
        Kernels<TVector>.Divide(ref scores, queries * scoreWidth, MathF.Sqrt(_headWidth));
        Kernels<TVector>.Softmax(ref scores, scoreWidth, queries, sessions);
        Kernels<TVector>.AddProduct(ref scores, scoreWidth, queries, sessions, ref values, HeadPadded, ref result, HeadPadded);
        for (var query = 0; query < queries; query++)
        {
            ref var target = ref Unsafe.Add(ref attended, ((((from + query) * windows) + window) * _width) + (head * _headWidth));
            for (var k = 0; k < _headWidth; k++)
                Unsafe.Add(ref target, k) = Unsafe.Add(ref result, (query * HeadPadded) + k);
        }
    }
}
