namespace Quantra.Client.Managed;

/// <summary>The weights of a network by name. Each must be taken once, so that none is missing or unknown.</summary>
internal sealed class NetworkWeights
{
    private readonly Dictionary<string, Tensor> _left;

    public NetworkWeights(IReadOnlyDictionary<string, Tensor> tensors) =>
        _left = new Dictionary<string, Tensor>(tensors, StringComparer.Ordinal);

    /// <summary>Takes a float32 tensor of this shape.</summary>
    /// <exception cref="QuantraException">It is missing, of another type or shape, or not finite.</exception>
    public float[] Take(string name, params int[] shape)
    {
        var values = TakeTensor(name, shape, "F32").ToSingle();
        if (values.AsSpan().IndexOfAnyExceptInRange(float.MinValue, float.MaxValue) >= 0)
            throw NotFinite(name);
        return values;
    }

    /// <summary>Takes a tensor of this shape and type.</summary>
    /// <exception cref="QuantraException">It is missing, or of another type or shape.</exception>
    public Tensor TakeTensor(string name, int[] shape, string type)
    {
        if (!_left.Remove(name, out var tensor))
            throw ArtifactError.Of(ArtifactFiles.WeightsFile, $"missing weights {name}");
        if (tensor.Type != type || !tensor.Shape.AsSpan().SequenceEqual(shape))
        {
            throw ArtifactError.Of(
                ArtifactFiles.WeightsFile,
                $"{name} is {tensor.Type} [{string.Join(", ", tensor.Shape)}], expected {type} [{string.Join(", ", shape)}]");
        }
        return tensor;
    }

    /// <summary>Checks that all weights were taken.</summary>
    /// <exception cref="QuantraException">One was not.</exception>
    public void End()
    {
        if (_left.Count > 0)
            throw ArtifactError.Of(ArtifactFiles.WeightsFile, $"unknown weights {string.Join(", ", _left.Keys.Order(StringComparer.Ordinal).Take(5))}");
    }

    /// <summary>The error for a weight that is not finite.</summary>
    public static QuantraException NotFinite(string name) =>
        ArtifactError.Of(ArtifactFiles.WeightsFile, $"{name} holds a value that is not finite");
}
