namespace Quantra.Client.Managed;

/// <summary>The computation of some windows on a tape: their inputs, and the heads of all horizons.</summary>
internal sealed class TapeTrace<TVector> : INetworkTrace
    where TVector : struct, IVector<TVector>
{
    private readonly UnusedObjects<Tape<TVector>>? _tapes;
    private readonly InputSizes _sizes;
    private readonly NetworkInputs _inputs;
    private readonly int _first;
    private readonly int _start;
    private QuantileHead<TVector>? _head;
    private TapeMatrix[] _raw = [];
    private TapeMatrix[] _gates = [];
    private TapeMatrix? _added;

    /// <summary>Writes windows to an empty tape.</summary>
    /// <param name="tapes">Unused tapes; gets this one at the end.</param>
    /// <param name="inputs">The windows, with known features for each.</param>
    /// <param name="sizes">Sizes of the inputs.</param>
    public TapeTrace(UnusedObjects<Tape<TVector>> tapes, NetworkInputs inputs, InputSizes sizes)
        : this(Tape<TVector>.Take(tapes), inputs, 0, inputs.Rows, sizes) => _tapes = tapes;

    /// <summary>Adds some of the windows to a tape, until the end of the trace.</summary>
    public TapeTrace(Tape<TVector> tape, NetworkInputs inputs, int first, int windows, InputSizes sizes)
    {
        (Tape, _start, _sizes, _inputs, _first, Windows) = (tape, tape.Length, sizes, inputs, first, windows);
        var stride = SessionRows.Stride(sizes);
        Rows = Tape.Add(sizes.EncoderLength * Windows, stride);
        SessionRows.Write(inputs, sizes, first, Windows, Tape.Values(Rows), stride);
        Known = Tape.Add(Sessions * Windows, Kernels<TVector>.Padded(sizes.Known));
        Static = Tape.Add(Windows, Kernels<TVector>.Padded(sizes.Static));
        for (var window = 0; window < Windows; window++)
        {
            inputs.StaticOf(first + window).CopyTo(Tape.Values(Static)[(window * Static.Width)..]);
            SessionRows.Spread(inputs.KnownOf(first + window, Sessions * sizes.Known), sizes.Known, Tape.Values(Known)[(window * Known.Width)..], Windows * Known.Width);
        }
    }

    public Tape<TVector> Tape { get; }

    /// <summary>Number of windows.</summary>
    public int Windows { get; }

    /// <summary>[sessions, windows, width] observed features, known features and share of known cells of past sessions.</summary>
    public TapeMatrix Rows { get; }

    /// <summary>[sessions, windows, width] known features of past and future sessions.</summary>
    public TapeMatrix Known { get; }

    /// <summary>[windows, width] static columns.</summary>
    public TapeMatrix Static { get; }

    /// <inheritdoc/>
    public double[] Units { get; private set; } = [];

    /// <inheritdoc/>
    public NetworkShares? Shares { get; private set; }

    private int Sessions => _sizes.EncoderLength + _sizes.FutureLength;

    /// <summary>The observed features [T, F] of a window.</summary>
    public ReadOnlySpan<float> ObservedOf(int window) => _inputs.ObservedOf(_first + window);

    /// <summary>The mask [T, F] of a window.</summary>
    public ReadOnlySpan<bool> MaskOf(int window) => _inputs.MaskOf(_first + window);

    /// <summary>Computes the units.</summary>
    /// <param name="head">The head.</param>
    /// <param name="contexts">[windows, width] what the head reads for each horizon.</param>
    /// <param name="added">[windows, horizons] terms that are added to all quantiles of a horizon; null = 0.</param>
    /// <param name="gates">[windows, 1] for each horizon, twice whose sigmoid multiplies the terms; empty = 1.</param>
    public void End(QuantileHead<TVector> head, TapeMatrix[] contexts, TapeMatrix? added = null, params TapeMatrix[] gates)
    {
        (_head, _added, _gates) = (head, added, gates);
        _raw = [.. contexts.Select((context, horizon) => head.Record(Tape, context, horizon))];
        Units = new double[Windows * contexts.Length * head.Levels];
        for (var cell = 0; cell < Windows * contexts.Length; cell++)
        {
            var (window, horizon) = (cell / contexts.Length, cell % contexts.Length);
            var quantiles = Units.AsSpan(cell * head.Levels, head.Levels);
            head.Rise(Tape.Values(_raw[horizon].Slice(window, 1)), quantiles);
            if (added is not { } terms)
                continue;
            var share = gates.Length == 0 ? 1 : 2 * Softplus.Slope(Tape.Value(gates[horizon].Slice(window, 1)));
            var term = share * Tape.Value(terms.Slice(window, 1), horizon);
            foreach (ref var quantile in quantiles)
                quantile += term;
        }
    }

    /// <summary>Keeps the weights of the network's layers, if there is one window.</summary>
    public void KeepShares(TapeMatrix past, TapeMatrix? future, TapeMatrix? statics, TapeMatrix attention)
    {
        if (Windows > 1)
            return;
        var (horizons, heads) = (_raw.Length, attention.Rows / _raw.Length);
        var mean = new float[horizons * Sessions];
        for (var row = 0; row < attention.Rows; row++)
        {
            for (var session = 0; session < Sessions; session++)
                mean[(row / heads * Sessions) + session] += Tape.Value(attention.Slice(row, 1), session) / heads;
        }
        Shares = new NetworkShares(SelectColumns(past, _sizes.RowWidth), SelectColumns(future, _sizes.Known), SelectColumns(statics, _sizes.StaticWidths.Length), mean);
    }

    /// <inheritdoc/>
    public InputGradients Gradients(ReadOnlySpan<double> weights)
    {
        var (head, horizons) = (_head!, _raw.Length);
        Tape.StartReverse();
        for (var cell = 0; cell < Windows * horizons; cell++)
        {
            var (window, horizon) = (cell / horizons, cell % horizons);
            var raw = _raw[horizon].Slice(window, 1);
            var own = weights.Slice(cell * head.Levels, head.Levels);
            head.ReverseRise(Tape.Values(raw), own, Tape.Gradients(raw));
            if (_added is not { } terms)
                continue;
            var (sum, share) = (0.0, 0.5);
            foreach (var weight in own)
                sum += weight;
            if (_gates.Length > 0)
            {
                var gate = _gates[horizon].Slice(window, 1);
                share = Softplus.Slope(Tape.Value(gate));
                Tape.Gradient(gate) = (float)(2 * sum * share * (1 - share) * Tape.Value(terms.Slice(window, 1), horizon));
            }

            Tape.Gradient(terms.Slice(window, 1), horizon) = (float)(2 * sum * share);
        }
        Tape.RunReverse();
        return Read();
    }

    /// <summary>Forgets the computation, and gives the tape back.</summary>
    public void Dispose()
    {
        Tape.Rewind(_start);
        _tapes?.Add(Tape);
    }

    private InputGradients Read()
    {
        int features = _sizes.Observed, known = _sizes.Known, length = _sizes.EncoderLength;
        var result = new InputGradients(new float[Windows * length * features], new float[Windows * Sessions * known], new float[Windows * _sizes.Static]);
        for (var row = 0; row < Windows * Sessions; row++)
        {
            var (session, window) = (row / Windows, row % Windows);
            var ofKnown = result.Known.AsSpan(((window * Sessions) + session) * known, known);
            Tape.Gradients(Known.Slice(row, 1))[..known].CopyTo(ofKnown);
            if (session >= length)
                continue;
            var ofRow = Tape.Gradients(Rows.Slice(row, 1));
            ofRow[..features].CopyTo(result.Observed.AsSpan(((window * length) + session) * features));
            for (var k = 0; k < known; k++)
                ofKnown[k] += ofRow[features + k];
        }
        for (var window = 0; window < Windows; window++)
            Tape.Gradients(Static.Slice(window, 1))[.._sizes.Static].CopyTo(result.Static.AsSpan(window * _sizes.Static));
        return result;
    }

    private float[] SelectColumns(TapeMatrix? matrix, int count) => matrix is not { } weights
        ? []
        : [.. Enumerable.Range(0, weights.Rows).SelectMany(row => Tape.Values(weights.Slice(row, 1))[..count].ToArray())];
}
