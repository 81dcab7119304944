"""One training step in PyTorch, in double, beside what test_torch_gradients wrote of the same step.

    python3 torch_gradients.py STEP.safetensors
The file holds the parameters before the step under PyTorch's names, the batch (`step.pixels`, NHWC,
`step.targets`), what came of it (`step.loss`, `gradient.NAME`, `after.NAME` of running statistics),
and in its metadata the model, the stem and the bound. Exit status 1 when something differs by more.
"""
import json
import struct
import sys

import torch
from torch import nn


def read(path):
    raw = open(path, 'rb').read()
    length = struct.unpack('<Q', raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    metadata = header.pop('__metadata__')
    types = {'F32': torch.float32, 'I64': torch.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=types[entry['dtype']])
        tensors[name] = values.reshape(entry['shape'])
    return metadata, tensors


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def smallcnn(classes):
    return nn.Sequential(*block(3, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64),
                         *block(64, 64), nn.MaxPool2d(2), *block(64, 128), *block(128, 128),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def probe(classes):
    return nn.Sequential(nn.Conv2d(3, 32, 3, stride=4, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


class Resnet9Conv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class Resnet9(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.prep = Resnet9Conv(3, 64)
        self.layer1 = Resnet9Conv(64, 128)
        self.res1 = nn.Sequential(Resnet9Conv(128, 128), Resnet9Conv(128, 128))
        self.layer2 = Resnet9Conv(128, 256)
        self.layer3 = Resnet9Conv(256, 512)
        self.res3 = nn.Sequential(Resnet9Conv(512, 512), Resnet9Conv(512, 512))
        self.head = nn.Linear(512, classes, bias=False)

    def forward(self, x):
        pool = nn.functional.max_pool2d
        x = pool(self.layer1(self.prep(x)), 2)
        x = x + self.res1(x)
        x = pool(self.layer3(pool(self.layer2(x), 2)), 2)
        x = x + self.res3(x)
        return self.head(torch.amax(x, dim=(2, 3))) * 0.125


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + skip)


class Resnet18(nn.Module):
    def __init__(self, classes, large):
        super().__init__()
        self.large = large
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if large else \
            nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, outputs in enumerate((64, 128, 256, 512), 1):
            first = BasicBlock(inputs, outputs, 1 if stage == 1 else 2)
            setattr(self, f'layer{stage}', nn.Sequential(first, BasicBlock(outputs, outputs, 1)))
            inputs = outputs
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        if self.large:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f'layer{stage}')(x)
        return self.fc(x.mean(dim=(2, 3)))


def build(metadata, classes):
    name = metadata['model']
    if name == 'resnet18':
        return Resnet18(classes, metadata['stem'] == 'large')
    return {'smallcnn': smallcnn, 'probe': probe, 'resnet9': Resnet9}[name](classes)


def distance(a, b):
    return float((a.double() - b).norm() / (b.norm() + 1e-30))


def main():
    metadata, tensors = read(sys.argv[1])
    step = {k: tensors.pop(k) for k in list(tensors) if k.startswith('step.')}
    gradients = {k[9:]: tensors.pop(k) for k in list(tensors) if k.startswith('gradient.')}
    after = {k[6:]: tensors.pop(k) for k in list(tensors) if k.startswith('after.')}
    model = build(metadata, step['step.targets'].shape[1])
    # Strict: every name must be there, in its shape, and in PyTorch's order.
    model.load_state_dict(tensors, strict=True)
    assert list(model.state_dict()) == list(tensors), 'the order of the names differs'
    model.double().train()
    pixels = step['step.pixels'].permute(0, 3, 1, 2).double()
    loss = -(step['step.targets'].double() * torch.log_softmax(model(pixels), 1)).sum()
    loss.backward()
    errors = {'loss': abs(float(step['step.loss']) / float(loss) - 1)}
    for name, parameter in model.named_parameters():
        errors[name] = distance(gradients.pop(name), parameter.grad)
    for name, values in model.state_dict().items():
        if name.endswith(('running_mean', 'running_var')):
            errors[name] = distance(after.pop(name), values)
    assert not gradients and not after, 'not in PyTorch: %s %s' % (list(gradients), list(after))
    worst = max(errors, key=errors.get)
    print('%s: %d values compared, worst %s %.1e' % (metadata['model'], len(errors), worst,
                                                     errors[worst]))
    sys.exit(errors[worst] > float(metadata['bound']))


main()
