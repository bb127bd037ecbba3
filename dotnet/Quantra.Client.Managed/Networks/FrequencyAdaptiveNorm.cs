using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Finds the strongest frequencies of windows, and maps them to states (Ye et al. 2024).</summary>
/// <remarks>
/// The share of a frequency that is removed grows with its power relative to the strongest remaining one. Each window and
/// feature has its own frequencies; unknown cells are at the mean of the known ones.
/// </remarks>
internal sealed class FrequencyAdaptiveNorm<TVector>
    where TVector : struct, IVector<TVector>
{
    private const float Ramp = 0.5f;
    private const float Tiny = 1e-12f;
    private const float Flat = 1e-9f;

    private readonly int _length;
    private readonly int _features;
    private readonly int _bins;
    private readonly int _strongest;
    private readonly FloatBuffer _analysis;
    private readonly FloatBuffer _synthesis;
    private readonly SequenceLinear<TVector> _map;
    private readonly FloatBuffer _bias;

    /// <summary>Reads the map of the strongest frequencies.</summary>
    /// <param name="weights">The network's weights.</param>
    /// <param name="sizes">Sizes of its inputs.</param>
    /// <param name="frequencies">Maximum number of removed frequencies.</param>
    /// <param name="width">Width of the states.</param>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a window does not have more frequencies.</exception>
    public FrequencyAdaptiveNorm(NetworkWeights weights, InputSizes sizes, int frequencies, int width)
    {
        (_length, _features, _strongest) = (sizes.EncoderLength, sizes.Observed, frequencies);
        _bins = (_length / 2) + 1;
        if (frequencies >= _bins)
        {
            throw ArtifactError.Of(
                ArtifactFiles.ManifestFile,
                $"cannot remove {frequencies} frequencies from windows of {_length} sessions, which have {_bins}; choose 1 to {_bins - 1}");
        }

        var (bins, sessions) = (Kernels<TVector>.Padded(_bins), Kernels<TVector>.Padded(_length));
        (_analysis, _synthesis) = (new FloatBuffer(_length * 2 * bins), new FloatBuffer(2 * bins * sessions));
        for (var session = 0; session < _length; session++)
        {
            for (var bin = 0; bin < _bins; bin++)
            {
                var share = (bin == 0 || 2 * bin == _length ? 1.0 : 2.0) / _length;
                var (sine, cosine) = Math.SinCos(2 * Math.PI / _length * ((long)session * bin));
                _analysis.At((session * 2 * bins) + bin) = (float)cosine;
                _analysis.At((session * 2 * bins) + bins + bin) = (float)sine;
                _synthesis.At((bin * sessions) + session) = (float)(cosine * share);
                _synthesis.At(((bins + bin) * sessions) + session) = (float)(sine * share);
            }
        }

        var (sent, weight) = (weights.Take("dominant.weight", width, _length * _features), new float[width * _length * _features]);
        for (var cell = 0; cell < sent.Length; cell++)
        {
            var (output, session, feature) = (cell / (_length * _features), cell / _features % _length, cell % _features);
            weight[(((output * _features) + feature) * _length) + session] = sent[cell];
        }

        _map = new SequenceLinear<TVector>(weight, width, _features, _length);
        _bias = PackedWeights.Bias(weights.Take("dominant.bias", width), 1, width, _map.Width);
    }

    /// <summary>Computes the strongest frequencies of each window on a tape.</summary>
    /// <returns>[features, windows, sessions], also in unknown cells.</returns>
    public TapeMatrix Record(TapeTrace<TVector> trace)
    {
        var (tape, filled) = (trace.Tape, Fill(trace));
        var waves = tape.Add(filled.Rows, _analysis.Length / _length);
        tape.AddProduct(filled, 0, _length, _analysis, waves);
        var dominant = tape.Add(filled.Rows, filled.Width);
        tape.AddProduct(KeepStrongest(tape, waves), 0, waves.Width, _synthesis, dominant);
        return dominant;
    }

    /// <summary>Maps the strongest frequencies to states on a tape.</summary>
    public TapeMatrix RecordMap(Tape<TVector> tape, TapeMatrix dominant)
    {
        var result = _map.Record(tape, dominant, _bias);
        tape.Elu(result);
        return result;
    }

    /// <summary>[features, windows, sessions] the observed features, with the mean of the known cells where unknown.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private TapeMatrix Fill(TapeTrace<TVector> trace)
    {
        var (tape, rows, windows) = (trace.Tape, trace.Rows, trace.Windows);
        var filled = tape.Add(_features * windows, Kernels<TVector>.Padded(_length));
        for (var row = 0; row < filled.Rows; row++)
        {
            var (feature, window) = (row / windows, row % windows);
            FillRow(trace.ObservedOf(window)[feature..], trace.MaskOf(window)[feature..], _features, tape.Values(filled.Slice(row, 1))[.._length]);
        }

        tape.Then(() =>
        {
            for (var row = 0; row < filled.Rows; row++)
            {
                var (feature, window, known, ofMean) = (row / windows, row % windows, 0, 0.0);
                for (var session = 0; session < _length; session++)
                {
                    known += IsKnown(window, session, feature) ? 1 : 0;
                    ofMean += IsKnown(window, session, feature) ? 0 : tape.Gradient(filled.Slice(row, 1), session);
                }

                for (var session = 0; session < _length; session++)
                {
                    if (IsKnown(window, session, feature))
                        tape.Gradient(rows.Slice((session * windows) + window, 1), feature) += (float)(tape.Gradient(filled.Slice(row, 1), session) + (ofMean / known));
                }
            }
        });
        return filled;

        bool IsKnown(int window, int session, int feature) => trace.MaskOf(window)[(session * _features) + feature];
    }

    /// <summary>Copies the cells of a feature, of which unknown ones become the mean of the others.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void FillRow(ReadOnlySpan<float> cells, ReadOnlySpan<bool> mask, int stride, Span<float> row)
    {
        var (known, sum) = (0, 0.0);
        for (var session = 0; session < row.Length; session++)
        {
            if (!mask[session * stride])
                continue;
            known++;
            sum += row[session] = cells[session * stride];
        }

        var mean = (float)(sum / Math.Max(known, 1));
        for (var session = 0; known < row.Length && session < row.Length; session++)
        {
            if (!mask[session * stride])
                row[session] = mean;
        }
    }

    /// <summary>The waves times the share of each frequency that is removed from the window.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private TapeMatrix KeepStrongest(Tape<TVector> tape, TapeMatrix waves)
    {
        var kept = tape.Add(waves.Rows, waves.Width);
        Span<float> power = new float[waves.Width / 2];
        for (var row = 0; row < waves.Rows; row++)
        {
            Measure(tape.Values(waves.Slice(row, 1)), power);
            var (strongest, last) = FindStrongest(power[.._bins]);
            var remaining = power[last] + Tiny + (Flat * power[strongest]);
            Keep(ref tape.Value(waves.Slice(row, 1)), ref power[0], remaining, power.Length, ref tape.Value(kept.Slice(row, 1)));
        }

        tape.Then(() =>
        {
            for (var row = 0; row < waves.Rows; row++)
                AddKeptGradient(tape.Values(waves.Slice(row, 1)), tape.Gradients(kept.Slice(row, 1)), tape.Gradients(waves.Slice(row, 1)));
        });
        return kept;
    }

    /// <summary>Multiplies the waves of a window with the share of each frequency.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void Keep(ref float waves, ref float power, float remaining, int width, ref float kept)
    {
        TVector zero = TVector.Of(0f), one = TVector.Of(1f);
        for (nuint real = 0, imaginary = (nuint)width; real < (nuint)width; real += (nuint)TVector.Lanes, imaginary += (nuint)TVector.Lanes)
        {
            var share = ((TVector.Load(ref power, real) / TVector.Of(remaining)) - one) / TVector.Of(Ramp);
            share = TVector.SelectLess(share, zero, zero, share);
            share = TVector.SelectLess(one, share, one, share);
            (TVector.Load(ref waves, real) * share).Store(ref kept, real);
            (TVector.Load(ref waves, imaginary) * share).Store(ref kept, imaginary);
        }
    }

    private void AddKeptGradient(Span<float> waves, ReadOnlySpan<float> kept, Span<float> gradient)
    {
        Span<float> power = new float[waves.Length / 2];
        Measure(waves, power);
        var (imaginary, ofRemaining) = (waves.Length / 2, 0.0);
        var (strongest, last) = FindStrongest(power[.._bins]);
        double remaining = power[last] + Tiny + (Flat * power[strongest]);
        for (var bin = 0; bin < _bins; bin++)
        {
            var share = ((power[bin] / (float)remaining) - 1) / Ramp;
            double ofPower = 0;
            if (share is >= 0 and <= 1)
            {
                var ofShare = (((double)kept[bin] * waves[bin]) + ((double)kept[imaginary + bin] * waves[imaginary + bin])) / Ramp;
                ofPower = ofShare / remaining;
                ofRemaining -= ofShare * power[bin] / (remaining * remaining);
            }

            Add(gradient, bin, kept[bin] * Math.Clamp(share, 0, 1), ofPower, waves);
            Add(gradient, imaginary + bin, kept[imaginary + bin] * Math.Clamp(share, 0, 1), ofPower, waves);
        }

        Add(gradient, last, 0, ofRemaining, waves);
        Add(gradient, imaginary + last, 0, ofRemaining, waves);
        Add(gradient, strongest, 0, Flat * ofRemaining, waves);
        Add(gradient, imaginary + strongest, 0, Flat * ofRemaining, waves);

        static void Add(Span<float> gradient, int place, double own, double ofPower, Span<float> waves) =>
            gradient[place] += (float)(own + (2 * ofPower * waves[place]));
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static void Measure(Span<float> waves, Span<float> power)
    {
        ref float first = ref waves[0], result = ref power[0];
        for (nuint bin = 0, width = (nuint)power.Length; bin < width; bin += (nuint)TVector.Lanes)
        {
            TVector real = TVector.Load(ref first, bin), imaginary = TVector.Load(ref first, width + bin);
            ((real * real) + (imaginary * imaginary)).Store(ref result, bin);
        }
    }

    /// <summary>Indices of the strongest frequency, and of the strongest one that is not removed.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private (int Strongest, int Remaining) FindStrongest(ReadOnlySpan<float> power)
    {
        Span<int> best = stackalloc int[_strongest + 1];
        for (var bin = 0; bin < power.Length; bin++)
        {
            var place = Math.Min(bin, best.Length);
            while (place > 0 && power[best[place - 1]] < power[bin])
                place--;
            if (place == best.Length)
                continue;
            best[place..^1].CopyTo(best[(place + 1)..]);
            best[place] = bin;
        }

        return (best[0], best[^1]);
    }
}
