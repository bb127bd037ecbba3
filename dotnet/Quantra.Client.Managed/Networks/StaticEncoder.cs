using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Static covariate encoders (section 4.3 of Lim et al. 2021): a selection of the static variables, then four networks.</summary>
internal sealed class StaticEncoder<TVector>
    where TVector : struct, IVector<TVector>
{
    /// <summary>Contexts of the selection and of the enrichment, initial state and initial cell.</summary>
    public const int Contexts = 4;

    private readonly VariableSelection<TVector> _selection;
    private readonly Linear<TVector>[] _first;
    private readonly Linear<TVector>[] _gate;
    private readonly LayerNorm<TVector>[] _norm;

    public StaticEncoder(NetworkWeights weights, int[] widths, int width)
    {
        _selection = new VariableSelection<TVector>(weights, "static.selection", widths, width, context: false);
        var contexts = new GatedResidualWeights(weights, "static.contexts", Contexts, width);
        _first = [.. Enumerable.Range(0, Contexts).Select(contexts.First<TVector>)];
        _gate = [.. Enumerable.Range(0, Contexts).Select(contexts.Gate<TVector>)];
        _norm = [.. Enumerable.Range(0, Contexts).Select(contexts.Norm<TVector>)];
    }

    /// <summary>Values of scratch memory.</summary>
    public int Scratch(int windows) => Math.Max(_selection.Scratch, 3 * windows * _selection.Width) + (windows * _selection.Width);

    /// <summary>Computes all contexts of some windows.</summary>
    /// <param name="columns">[windows, stride] static columns.</param>
    /// <param name="stride">Distance of rows.</param>
    /// <param name="windows">Number of windows.</param>
    /// <param name="scratch">Memory of Scratch values.</param>
    /// <param name="contexts">[Contexts, windows, width]</param>
    public void Run(ref float columns, int stride, int windows, ref float scratch, ref float contexts)
    {
        var width = _selection.Width;
        ref var selected = ref scratch;
        ref var hidden = ref Unsafe.Add(ref scratch, windows * width);
        ref var gates = ref Unsafe.Add(ref hidden, windows * width);
        _selection.Run(ref columns, stride, windows, ref columns, 0, ref hidden, ref selected);
        for (var k = 0; k < Contexts; k++)
        {
            ref var result = ref Unsafe.Add(ref contexts, k * windows * width);
            _first[k].Run(ref selected, width, windows, ref hidden);
            Kernels<TVector>.Elu(ref hidden, windows * width);
            _gate[k].Run(ref hidden, width, windows, ref gates);
            for (var row = 0; row < windows; row++)
                Kernels<TVector>.Copy(ref Unsafe.Add(ref selected, row * width), width, ref Unsafe.Add(ref result, row * width));
            Kernels<TVector>.AddGated(ref gates, windows, width, ref result);
            _norm[k].Run(ref result, windows);
        }
    }

    /// <summary>Computes all contexts on a tape, and the weights of the static variables.</summary>
    public (TapeMatrix[] Contexts, TapeMatrix Weights) Record(Tape<TVector> tape, TapeMatrix columns)
    {
        var (selected, weights) = _selection.Record(tape, columns, null);
        var contexts = new TapeMatrix[Contexts];
        for (var k = 0; k < Contexts; k++)
        {
            var hidden = _first[k].Record(tape, selected);
            tape.Elu(hidden);
            contexts[k] = _norm[k].Record(tape, tape.AddGated(_gate[k].Record(tape, hidden), selected));
        }
        return (contexts, weights);
    }
}
